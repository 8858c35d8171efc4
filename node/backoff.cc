#include "node/backoff.h"

#include <algorithm>

#include "common/rng.h"

namespace lynx {

Nanos Backoff::Next() {
  const int64_t whole = std::min(options_.most.value, options_.first.value << std::min(attempts_, 20));
  ++attempts_;
  const double draw = static_cast<double>(Mix64(seed_ + drawn_++) >> 11) * 0x1p-53;  // a random number in [0, 1)
  return Nanos(whole / 2 + static_cast<int64_t>(draw * static_cast<double>(whole - whole / 2)));
}

}  // namespace lynx
