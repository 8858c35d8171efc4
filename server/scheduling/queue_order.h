// Queue order: the order in which waiting jobs get devices. Queues take turns by their shares. The jobs of one queue are
// ordered by priority, then by age. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
#define LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/values/queue_config.h"

namespace lynx::server {

// A job that waits only for its turn.
struct WaitingJob {
  int64_t submission = 0;
  int32_t devices = 1;  // the fewest devices that it can begin with
};

// The job's position relative to its queue's quota. kOverQuota: the job is not allowed to begin now, even if devices are free.
enum class Standing : uint8_t { kWithinQuota, kBorrows, kOverQuota };

struct Turn {
  int64_t submission = 0;
  Standing standing = Standing::kWithinQuota;
  bool operator==(const Turn&) const = default;
};

// `waiting`: the jobs of each queue, in the queue's order. `used`: number of devices that the jobs of each queue hold. A queue
// without a config has the default config. Each turn goes to the queue with the fewest used devices relative to its weight (the
// first by name if equal). Devices of jobs that already had a turn count as used. Jobs within quota come first, then jobs that
// borrow, ordered in the same way, then jobs over quota. Jobs of a queue keep their order, with one exception: a job that needs
// more than the quota of a queue that may not borrow counts as over quota and holds up no other job.
std::vector<Turn> OrderOfTurns(const std::map<std::string, std::vector<WaitingJob>>& waiting,
                               const std::map<std::string, int32_t>& used, const std::map<std::string, QueueConfig>& configs);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
