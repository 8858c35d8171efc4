// ServerHealth: the state that the pages /healthz and /readyz show of a server (node/metrics_endpoint.h). Thread-safe.
#ifndef LYNX_SERVER_METRICS_HEALTH_H_
#define LYNX_SERVER_METRICS_HEALTH_H_

#include <atomic>
#include <string>

#include "common/clock.h"
#include "common/units.h"

namespace lynx::server {

class ServerHealth {
 public:
  explicit ServerHealth(const Clock& clock) : clock_(clock), ticked_(clock.Monotonic().value) {}

  // Call it when the event loop has completed a turn.
  void Ticked() { ticked_ = clock_.Monotonic().value; }
  // Sets whether the server accepts calls.
  void SetListening(bool listening) { listening_ = listening; }

  // Returns what is wrong; empty: nothing is wrong. The loop counts as stuck if it has completed no turn for kMaxSilence. A
  // slow disk delays a turn by less than that.
  std::string Alive() const {
    const Nanos silence = clock_.Monotonic() - Nanos(ticked_.load());
    return silence > kMaxSilence ? "the event loop has not turned for " + FormatDuration(silence) : "";
  }
  std::string Ready() const { return listening_ ? Alive() : "the server takes no calls"; }

  static constexpr Nanos kMaxSilence{120'000'000'000};

 private:
  const Clock& clock_;
  std::atomic<int64_t> ticked_;  // monotonic time
  std::atomic<bool> listening_{false};
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_HEALTH_H_
