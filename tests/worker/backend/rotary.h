// Rotary tables for tests of ops, computed directly from the formula. Test support.
#ifndef LYNX_TESTS_WORKER_BACKEND_ROTARY_H_
#define LYNX_TESTS_WORKER_BACKEND_ROTARY_H_

#include <cmath>
#include <cstdint>

#include "worker/backend/backend.h"

namespace lynx::worker {

// Returns a table that rotates the first `dims` elements of a head, with this base and scale.
inline RotaryTable PlainRotary(int64_t dims, double theta = 1e4, double scale = 1) {
  RotaryTable table{.pairs = dims / 2, .scale = scale};
  for (int64_t i = 0; i < table.pairs; ++i) {
    table.slopes[static_cast<size_t>(i)] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return table;
}

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_ROTARY_H_
