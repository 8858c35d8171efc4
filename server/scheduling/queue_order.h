// Queue order: the order in which waiting jobs get devices. Queues take turns by their shares. The jobs of one queue are
// ordered by priority, then by age. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
#define LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/values/queue_config.h"

namespace lynx::server {

// A job that waits only for its turn.
struct WaitingJob {
  int64_t submission = 0;
  int32_t devices = 1;    // the fewest devices that it can begin with
  std::string user = {};  // JobRecord::owner
};

// The job's position relative to its queue's quota and to its user's quota in this queue. kOverQuota: the job is not allowed to
// begin now, even if devices are free.
enum class Standing : uint8_t { kWithinQuota, kBorrows, kOverQuota };

struct Turn {
  int64_t submission = 0;
  Standing standing = Standing::kWithinQuota;
  bool by_user = false;  // the user's quota is the reason for the standing, not the queue's
  bool operator==(const Turn&) const = default;
};

// Number of devices that jobs hold.
struct UsedDevices {
  std::map<std::string, int32_t> by_queue;
  std::map<std::pair<std::string, std::string>, int32_t> by_user;  // the key is queue and user
};

// `waiting`: the jobs of each queue, in the queue's order. A queue without a config has the default config. Each turn goes to
// the queue with the fewest used devices relative to its weight (the first by name if equal). Devices of jobs that already had
// a turn count as used. Jobs within both quotas come first, then jobs that borrow, ordered in the same way, then jobs over
// quota. Jobs of a queue keep their order, with two exceptions. A job that needs more than a quota of a queue that may not
// borrow counts as over quota and holds up no other job. A job that waits for the quota of its user holds up only jobs of this
// user.
std::vector<Turn> OrderOfTurns(const std::map<std::string, std::vector<WaitingJob>>& waiting, const UsedDevices& used,
                               const std::map<std::string, QueueConfig>& configs);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
