// Backoff: how long to wait before the next attempt. Exponential, bounded, with jitter, so that the nodes of a
// cluster do not all dial a restarted server at once. Not thread-safe.
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
  // In [half, whole] of first * 2^attempts, and never above `most`.
  Nanos Next();
  // After a success.
  void Reset() { attempts_ = 0; }

 private:
  BackoffOptions options_;
  uint64_t seed_;
  uint64_t drawn_ = 0;
  int attempts_ = 0;
};

}  // namespace lynx

#endif  // LYNX_NODE_BACKOFF_H_
