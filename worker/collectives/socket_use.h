// The kernel's counters of a TCP connection.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_

#include <cstdint>

#include "common/units.h"

namespace lynx::worker {

// Counted since the connection was made. See LinkUse.
struct SocketUse {
  int64_t bytes = 0;
  Nanos busy;
};

// The use of a connected TCP socket; zero where the kernel does not provide it (before Linux 4.10).
SocketUse UseOfSocket(int fd);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
