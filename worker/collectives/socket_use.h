// What the kernel has counted of a TCP connection.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_

#include <cstdint>

#include "common/units.h"

namespace lynx {

// Since it was made. See LinkUse.
struct SocketUse {
  int64_t bytes = 0;
  Nanos busy;
};

// Of a connected TCP socket; zero where the kernel does not say (before Linux 4.10).
SocketUse UseOfSocket(int fd);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
