// Reads the kernel's counters of a TCP connection.
#ifndef LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
#define LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_

#include <cstdint>

#include "common/units.h"

namespace lynx::worker {

// The counters start when the connection is made. LinkUse says what they mean.
struct SocketUse {
  int64_t bytes = 0;
  Nanos busy;
};

// Returns the counters of a connected TCP socket; they are zero if the kernel does not provide them (before Linux 4.10).
SocketUse UseOfSocket(int fd);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_SOCKET_USE_H_
