#include "worker/collectives/socket_use.h"

#include <linux/tcp.h>  // has all fields of tcp_info; netinet/tcp.h has only the first ones
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace lynx::worker {

SocketUse UseOfSocket(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(info.tcpi_rwnd_limited)) return {};
  const auto busy = static_cast<int64_t>(info.tcpi_busy_time);  // microseconds
  const auto unread = static_cast<int64_t>(info.tcpi_rwnd_limited);
  return {.bytes = static_cast<int64_t>(info.tcpi_bytes_acked), .busy = Nanos(std::max<int64_t>(0, busy - unread) * 1000)};
}

}  // namespace lynx::worker
