// QueueConfig: what an administrator sets of a queue. Plain data.
#ifndef LYNX_SERVER_VALUES_QUEUE_CONFIG_H_
#define LYNX_SERVER_VALUES_QUEUE_CONFIG_H_

#include <cstdint>
#include <string>

namespace lynx {

inline constexpr char kDefaultQueue[] = "default";

struct QueueConfig {
  std::string name;
  int32_t weight = 1;      // 1..1000
  int32_t quota = 0;       // devices that its jobs have while jobs of other queues wait; 0 = no limit
  bool may_borrow = true;  // more than the quota where nobody else waits
  bool operator==(const QueueConfig&) const = default;
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_QUEUE_CONFIG_H_
