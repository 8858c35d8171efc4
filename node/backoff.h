// Backoff: how long to wait before the next attempt. The wait grows exponentially up to a limit, with jitter, so that the nodes
// of a cluster do not all connect to a restarted server at the same time. Not thread-safe.
#ifndef LYNX_NODE_BACKOFF_H_
#define LYNX_NODE_BACKOFF_H_

#include <cstdint>

#include "common/units.h"

namespace lynx {

struct BackoffOptions {
  Nanos first{200'000'000};
  Nanos most{5'000'000'000};
};

class Backoff {
 public:
  Backoff(BackoffOptions options, uint64_t seed) : options_(options), seed_(seed) {}
  // The time to wait before the next attempt. After n failed attempts it lies between half and all of min(first * 2^n, most),
  // with `first` and `most` from BackoffOptions.
  Nanos Next();
  // Call it after a success: the next wait is short again.
  void Reset() { attempts_ = 0; }

 private:
  BackoffOptions options_;
  uint64_t seed_;
  uint64_t drawn_ = 0;
  int attempts_ = 0;
};

}  // namespace lynx

#endif  // LYNX_NODE_BACKOFF_H_
