// WireTap is a relay between two ranks, as an attacker on the network could have: it passes their bytes on, keeps a copy of
// them, and can change them. Test support. Thread-safe.
#ifndef LYNX_TESTS_WORKER_COLLECTIVES_WIRE_TAP_H_
#define LYNX_TESTS_WORKER_COLLECTIVES_WIRE_TAP_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "worker/collectives/socket.h"

namespace lynx::worker {

class WireTap {
 public:
  // Changes bytes that a connecting end has sent. `at`: how many bytes that connection had passed on in this direction before.
  using Change = std::function<void(int64_t at, std::string& bytes)>;
  // Passes on connections to `target`. `change` may be null.
  explicit WireTap(PeerAddress target, Change change = nullptr);
  ~WireTap();
  WireTap(const WireTap&) = delete;
  WireTap& operator=(const WireTap&) = delete;

  PeerAddress address() const { return {target_.host, port_}; }
  // All bytes that were passed on, by connection and direction.
  std::string Seen() const;

 private:
  void Run();

  const PeerAddress target_;
  const Change change_;
  UniqueFd listener_;
  int32_t port_ = 0;
  mutable std::mutex mutex_;
  std::string seen_;  // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_COLLECTIVES_WIRE_TAP_H_
