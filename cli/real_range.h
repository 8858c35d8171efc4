// RealRange: a check of options whose values are numbers. Only for the files that know CLI11.
#ifndef LYNX_CLI_REAL_RANGE_H_
#define LYNX_CLI_REAL_RANGE_H_

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace lynx::cli {

// Accepts numbers from `least` to `most`, as CLI::Range does, but rejects "nan". CLI::Range accepts "nan", because it is
// neither below nor above the range.
inline CLI::Validator RealRange(double least, double most) {
  const CLI::Range range(least, most);
  return CLI::Validator(
      [range](std::string& text) {
        const std::string wrong = range(text);
        return wrong.empty() && std::isnan(std::strtod(text.c_str(), nullptr)) ? "Value " + text + " is not a number" : wrong;
      },
      range.get_description());
}

}  // namespace lynx::cli

#endif  // LYNX_CLI_REAL_RANGE_H_
