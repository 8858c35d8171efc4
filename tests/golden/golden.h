// Golden texts are files in tests/golden with the expected texts. UPDATE_GOLDEN=1 rewrites them; people review the
// difference.
#ifndef LYNX_TESTS_GOLDEN_GOLDEN_H_
#define LYNX_TESTS_GOLDEN_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace lynx {

inline void ExpectGolden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(LYNX_SOURCE_DIR) + "/tests/golden/" + name;
  const char* update = std::getenv("UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file.good()) << path << " is missing: run this test with UPDATE_GOLDEN=1 and review the file";
  std::stringstream expected;
  expected << file.rdbuf();
  if (actual == expected.str()) return;
  std::istringstream actual_lines(actual), expected_lines(expected.str());
  std::string actual_line, expected_line;
  for (int line = 1;; ++line) {
    const bool more_actual = static_cast<bool>(std::getline(actual_lines, actual_line));
    const bool more_expected = static_cast<bool>(std::getline(expected_lines, expected_line));
    if (more_actual && more_expected && actual_line == expected_line) continue;
    FAIL() << path << " differs first in line " << line << "\n  expected: " << (more_expected ? expected_line : "the end")
           << "\n  actual:   " << (more_actual ? actual_line : "the end") << "\nIf that is meant, run with UPDATE_GOLDEN=1.";
  }
}

}  // namespace lynx

#endif  // LYNX_TESTS_GOLDEN_GOLDEN_H_
