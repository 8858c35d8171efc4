// The order in which waiting jobs get devices: queues by their shares, jobs of a queue by priority, then by age. Pure;
// thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
#define LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/values/queue_config.h"

namespace lynx {

// A job that could begin.
struct WaitingJob {
  int64_t submission = 0;
  int32_t devices = 1;  // the fewest that it can begin with
};

// kOverQuota: it may not begin now, whatever is free.
enum class Standing : uint8_t { kWithinQuota, kBorrows, kOverQuota };

struct Turn {
  int64_t submission = 0;
  Standing standing = Standing::kWithinQuota;
  bool operator==(const Turn&) const = default;
};

// `waiting`: by queue, each in its own order. `used`: devices that the jobs of a queue have. A queue without a config has the
// defaults. At each turn the queue with the least used devices for its weight is next (by name where equal), counting what the
// jobs before get; then those that borrow, in the same way; then those over their quotas. Jobs of a queue keep their order, but
// one that needs more than a quota beyond which its queue does not borrow holds up nobody.
std::vector<Turn> OrderOfTurns(const std::map<std::string, std::vector<WaitingJob>>& waiting,
                               const std::map<std::string, int32_t>& used, const std::map<std::string, QueueConfig>& configs);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_QUEUE_ORDER_H_
