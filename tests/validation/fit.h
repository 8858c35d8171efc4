// Fits a few integer constants, so that an error becomes as small as possible. Deterministic; not thread-safe.
#ifndef LYNX_TESTS_VALIDATION_FIT_H_
#define LYNX_TESTS_VALIDATION_FIT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/validation/published.h"

namespace lynx::validation {

struct Unknown {
  std::string name;
  int32_t* value;  // the function `error` reads it; the fit begins with its current value
  int32_t low, high;
};

// Changes the unknowns one at a time, in smaller and smaller steps, until no such step makes `error` smaller. Returns the final
// values, which the unknowns keep.
std::vector<Constant> FitConstants(const std::vector<Unknown>& unknowns, const std::function<double()>& error);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_FIT_H_
