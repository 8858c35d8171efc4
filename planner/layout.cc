// See layout.h.
#include "planner/layout.h"

#include "absl/strings/str_cat.h"

namespace lynx {

std::string LayoutText(const ParallelLayout& layout) {
  return absl::StrCat("tp", layout.tp, " pp", layout.pp, " dp", layout.dp);
}

}  // namespace lynx
