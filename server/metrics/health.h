// ServerHealth: what the pages /healthz and /readyz say of a server (node/metrics_endpoint.h). Thread-safe.
#ifndef LYNX_SERVER_METRICS_HEALTH_H_
#define LYNX_SERVER_METRICS_HEALTH_H_

#include <atomic>
#include <string>

#include "common/clock.h"
#include "common/units.h"

namespace lynx {

class ServerHealth {
 public:
  explicit ServerHealth(const Clock& clock) : clock_(clock), ticked_(clock.Monotonic().value) {}

  // The event loop has turned.
  void Ticked() { ticked_ = clock_.Monotonic().value; }
  // Whether the server takes calls.
  void SetListening(bool listening) { listening_ = listening; }

  // What is wrong; "" where nothing is. A loop that has not turned for kMaxSilence: not even a slow disk explains that.
  std::string Alive() const {
    const Nanos silence = clock_.Monotonic() - Nanos(ticked_.load());
    return silence > kMaxSilence ? "the event loop has not turned for " + FormatDuration(silence) : "";
  }
  std::string Ready() const { return listening_ ? Alive() : "the server takes no calls"; }

  static constexpr Nanos kMaxSilence{120'000'000'000};

 private:
  const Clock& clock_;
  std::atomic<int64_t> ticked_;  // monotonic
  std::atomic<bool> listening_{false};
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_HEALTH_H_
