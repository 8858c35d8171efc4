// See real_text.h.
#include "common/real_text.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace lynx {

std::string RealText(double value) {
  for (int digits = 1; digits <= 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) return text;
  }
  return absl::StrCat(value);  // not a finite number
}

}  // namespace lynx
