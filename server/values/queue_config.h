// QueueConfig: the settings of a queue, which an operator makes. QueueView: what people see of a queue. Plain data.
#ifndef LYNX_SERVER_VALUES_QUEUE_CONFIG_H_
#define LYNX_SERVER_VALUES_QUEUE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lynx::server {

inline constexpr char kDefaultQueue[] = "default";
inline constexpr size_t kMaxQueueManagers = 100;

struct QueueConfig {
  std::string name;
  int32_t weight = 1;      // from 1 to 1000
  int32_t quota = 0;       // devices that the queue's jobs may hold while jobs of other queues wait; 0: no limit
  bool may_borrow = true;  // the queue may hold more than its quota while no job within its quota waits, and so may each user
  int32_t user_quota = 0;  // devices that the queue's jobs of one user may hold, under the rules of `quota`; 0: no limit
  std::vector<std::string> managers = {};  // names of users who may change all jobs of the queue; at most kMaxQueueManagers
  bool operator==(const QueueConfig&) const = default;
};

// A queue as people see it.
struct QueueView {
  QueueConfig config;
  int32_t waiting = 0, running = 0;  // unfinished jobs: `waiting` are QUEUED, `running` are all others
  int32_t devices = 0;               // devices that the queue's jobs have or are planned for
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_QUEUE_CONFIG_H_
