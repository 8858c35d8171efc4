// Sockets: an owned file descriptor, and the few socket calls that connecting and communicating share. Every socket
// is non-blocking and closed on exec. Free functions are thread-safe; an OwnedFd has one owner.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~OwnedFd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

Nanos MonotonicNow();  // CLOCK_MONOTONIC

std::string PeerAddressText(const PeerAddress& address);  // "10.0.0.1:4000", "[::1]:4000"

// The address of the other end; "an unknown address" when the connection is gone.
std::string AddressOfPeer(int fd);

// Starts to connect. The connection is established, or has failed, when the socket becomes writable (see ConnectResult).
absl::StatusOr<OwnedFd> BeginConnect(const PeerAddress& address);
// The errno of the finished attempt; 0 when the connection is established.
int ConnectResult(int fd);

// Sets the options of a connection between ranks: no delay, buffers, keepalive, pacing (bytes per second, 0 = off).
absl::Status ConfigureLink(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_H_
