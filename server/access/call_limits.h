// CallLimits: how much each caller may ask for, and when people wait so that nodes are heard. Thread-safe.
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

namespace lynx {

struct CallLimitOptions {
  // Of each caller; a rate of 0: no limit.
  Rate reads{.per_second = 0, .burst = 1};
  Rate changes{.per_second = 0, .burst = 1};
  // Events that wait in the server's loop, beyond which people's calls are refused. Nodes' reports have the rest of the queue.
  size_t shed_above = 2'500;
};

// What a caller is known by.
enum class CallerKey : uint8_t { kName, kAddress };

class CallLimits {
 public:
  explicit CallLimits(CallLimitOptions options) : options_(options) {}

  // Takes one of the caller's. ResourceExhausted with the time after which there is one (server/wire/retry_later.h). Of more
  // callers of a kind than kMaxCallers at a time those that come last share what one may have: strangers from many addresses
  // share with strangers only.
  absl::Status Take(Cost cost, CallerKey key, const std::string& caller, Nanos now);
  // ResourceExhausted where the loop is behind. `queue`: events that wait in it.
  absl::Status CheckQueue(size_t queue) const;

  static constexpr size_t kMaxCallers = 10'000;

 private:
  const CallLimitOptions options_;
  std::mutex mutex_;
  std::array<std::map<std::string, TokenBucket>, 2> buckets_;  // guarded by mutex_; by CallerKey; then by cost and caller
};

}  // namespace lynx

#endif  // LYNX_SERVER_ACCESS_CALL_LIMITS_H_
