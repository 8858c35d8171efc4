#include "tests/validation/fit.h"

#include <algorithm>

namespace lynx::validation {

std::vector<Constant> FitConstants(const std::vector<Unknown>& unknowns, const std::function<double()>& error) {
  double least = error();
  for (int32_t step = 256; step >= 1;) {
    bool moved = false;
    for (const Unknown& unknown : unknowns) {
      const int32_t here = *unknown.value;
      for (const int32_t way : {step, -step}) {
        *unknown.value = std::clamp(here + way, unknown.low, unknown.high);
        const double there = error();
        if (there < least) {
          least = there;
          moved = true;
          break;
        }
        *unknown.value = here;
      }
    }
    if (!moved) step /= 2;
  }
  std::vector<Constant> constants;
  for (const Unknown& unknown : unknowns) constants.push_back({unknown.name, *unknown.value});
  return constants;
}

}  // namespace lynx::validation
