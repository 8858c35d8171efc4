// ServerHealth: the state that the pages /healthz and /readyz show of a server (node/metrics_endpoint.h). Thread-safe.
#ifndef LYNX_SERVER_METRICS_HEALTH_H_
#define LYNX_SERVER_METRICS_HEALTH_H_

#include <atomic>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/units.h"

namespace lynx::server {

class ServerHealth {
 public:
  static constexpr Nanos kMaxSilence{120'000'000'000};

  // `max_silence`: how long the event loop may complete no turn. A slow disk delays a turn by less than kMaxSilence.
  explicit ServerHealth(const Clock& clock, Nanos max_silence = kMaxSilence)
      : clock_(clock), max_silence_(max_silence), ticked_(clock.Monotonic().value) {}

  // Call it when the event loop has completed a turn.
  void Ticked() { ticked_ = clock_.Monotonic().value; }
  // Sets whether the server accepts calls.
  void SetListening(bool listening) { listening_ = listening; }
  // Says why the server does not lead; empty: it leads. Until then it has no event loop that must turn.
  void SetStandby(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why.empty() && !standby_.empty()) Ticked();
    standby_ = why;
  }

  // Returns what is wrong; empty: nothing is wrong. The loop counts as stuck if it has completed no turn for longer than
  // `max_silence`.
  std::string Alive() const {
    if (!Role().empty()) return "";
    const Nanos silence = clock_.Monotonic() - Nanos(ticked_.load());
    return silence > max_silence_ ? "the event loop has not turned for " + FormatDuration(silence) : "";
  }
  std::string Ready() const {
    if (const std::string role = Role(); !role.empty()) return role;
    return listening_ ? Alive() : "the server takes no calls";
  }
  // Why the server does not lead; empty: it leads.
  std::string Role() const {
    const std::lock_guard lock(mutex_);
    return standby_;
  }

 private:
  const Clock& clock_;
  const Nanos max_silence_;
  std::atomic<int64_t> ticked_;  // monotonic time
  std::atomic<bool> listening_{false};
  mutable std::mutex mutex_;
  std::string standby_;  // guarded by mutex_
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_HEALTH_H_
