#include "worker/collectives/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> NumericAddress(const std::string& host, int32_t port) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port ", port, " of host '", host, "' is not in 0..65535"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* result = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &result);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, "' is not a numeric IPv4 or IPv6 address: ", gai_strerror(error)));
  }
  return AddressList(result, &freeaddrinfo);
}

constexpr int kReceiveWindowBytes = 2 * 1024 * 1024;

absl::Status SetOption(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("setsockopt(", name, ", ", value, "): ", std::strerror(errno)));
}

}  // namespace

Nanos MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos(int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
}

std::string PeerAddressText(const PeerAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", address.host, v6 ? "]:" : ":", address.port);
}

std::string AddressOfPeer(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const bool known = getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof(host), port, sizeof(port),
                                 NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  return known ? PeerAddressText({host, std::atoi(port)}) : "an unknown address";
}

absl::StatusOr<UniqueFd> BeginConnect(const PeerAddress& address) {
  LYNX_ASSIGN_OR_RETURN(AddressList list, NumericAddress(address.host, address.port));
  UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ResourceExhaustedError(absl::StrCat("socket(): ", std::strerror(errno)));
  LYNX_RETURN_IF_ERROR(ConfigureLink(fd.get(), 0));
  if (connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return fd;
}

int ConnectResult(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

absl::Status ConfigureLink(int fd, int64_t pacing_bytes_per_second) {
  LYNX_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  // Keepalive notices within about 20 seconds that a machine has vanished, but only if no bytes are on their way. If bytes are
  // on their way, the signs of life (communicator.h) notice it. TCP_USER_TIMEOUT would notice it too, but it would also end
  // data connections whose receiver is only busy.
  LYNX_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  LYNX_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10, "TCP_KEEPIDLE"));
  LYNX_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3, "TCP_KEEPINTVL"));
  LYNX_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"));
  // A peer must be able to send its part of a transfer while this rank's core is busy with other work. A large SO_RCVLOWAT
  // makes the kernel open the receive window to that size, up to tcp_rmem's limit. The window stays open when SO_RCVLOWAT is
  // set back to 1. The kernel also keeps its automatic tuning. SO_RCVBUF would end the tuning, and has a lower limit on a
  // default system.
  LYNX_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_RCVLOWAT, kReceiveWindowBytes, "SO_RCVLOWAT"));
  LYNX_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_RCVLOWAT, 1, "SO_RCVLOWAT"));
  if (pacing_bytes_per_second > 0) {
    const uint64_t rate = static_cast<uint64_t>(pacing_bytes_per_second);
    if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) != 0) {
      return absl::InternalError(absl::StrCat("setsockopt(SO_MAX_PACING_RATE, ", rate, "): ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ListeningSocket> ListenTcp(const std::string& host) {
  LYNX_ASSIGN_OR_RETURN(AddressList list, NumericAddress(host, 0));
  UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ResourceExhaustedError(absl::StrCat("socket(): ", std::strerror(errno)));
  // While a rank is still loading, all connections of its peers may wait in this queue.
  constexpr int kBacklog = 512;
  if (bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 || listen(fd.get(), kBacklog) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ": ", std::strerror(errno)));
  }
  sockaddr_storage bound;
  socklen_t length = sizeof(bound);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return absl::InternalError(absl::StrCat("getsockname(): ", std::strerror(errno)));
  }
  const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return ListeningSocket{fd.Release(), ntohs(port)};
}

}  // namespace lynx::worker
