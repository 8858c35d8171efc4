// CallLimits: limits the rate of each caller's calls, and refuses people's calls while the server is behind, so that reports of
// nodes still get through. Thread-safe.
#ifndef LYNX_SERVER_ACCESS_CALL_LIMITS_H_
#define LYNX_SERVER_ACCESS_CALL_LIMITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "common/units.h"
#include "server/access/rpc_permissions.h"
#include "server/loop/token_bucket.h"

namespace lynx::server {

struct CallLimitOptions {
  // Limits for each caller, in calls per second; a rate of 0 means no limit.
  Rate reads{.per_second = 0, .burst = 1};
  Rate changes{.per_second = 0, .burst = 1};
  // If more events than this wait in the server's loop, people's calls are refused. The rest of the loop's queue is reserved
  // for reports of nodes.
  size_t shed_above = 2'500;
};

// What identifies a caller.
enum class CallerKey : uint8_t { kName, kAddress };

class CallLimits {
 public:
  explicit CallLimits(CallLimitOptions options) : options_(options) {}

  // Takes one call from the caller's rate. ResourceExhausted: no call is left; the status says when to try again
  // (server/wire/retry_later.h). For each CallerKey at most kMaxCallers callers have a rate of their own. Callers that come
  // later share one rate, so unknown callers from many addresses cannot use up the rates of callers with names.
  absl::Status Take(Cost cost, CallerKey key, const std::string& caller, Nanos now);
  // Refuses a call (ResourceExhausted) while the loop is behind. `queue`: number of events that wait in the loop.
  absl::Status CheckQueue(size_t queue) const;

  static constexpr size_t kMaxCallers = 10'000;

 private:
  const CallLimitOptions options_;
  std::mutex mutex_;
  std::array<std::map<std::string, TokenBucket>, 2> buckets_;  // guarded by mutex_; first by CallerKey, then by cost and caller
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_CALL_LIMITS_H_
