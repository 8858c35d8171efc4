// Writes the text of docs/comparison.md. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_PAGE_H_
#define LYNX_TESTS_COMPARISON_PAGE_H_

#include <string>
#include <vector>

#include "tests/comparison/curves.h"

namespace lynx::comparison {

// Returns the file name of the cluster's figure, relative to docs/.
std::string MemoryFigureName(const std::string& cluster);
inline constexpr char kSpeedupFigureName[] = "images/comparison-speedup.svg";

// Returns Markdown: what is compared and how, the figures, and a table with every point.
std::string ComparisonPage(const std::vector<Curve>& curves);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_PAGE_H_
