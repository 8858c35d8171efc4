#include "node/rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

constexpr int32_t kMaxCore = 4095;

struct RateUnit {
  const char* suffix;
  double bytes;
};
// Longer suffixes first: "Gbit" ends in "bit".
constexpr RateUnit kUnits[] = {{"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}, {"bit", 1.0 / 8}, {"kB", 1e3},
                               {"MB", 1e6},       {"GB", 1e9},       {"B", 1},          {"", 1}};

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

bool ParseCore(const std::string& text, int32_t& core) {
  return absl::SimpleAtoi(text, &core) && core >= 0 && core <= kMaxCore;
}

}  // namespace

absl::StatusOr<int64_t> ParseRate(const std::string& text) {
  if (text.empty()) return 0;
  std::string number = text;
  if (EndsWith(number, "/s")) number.resize(number.size() - 2);
  for (const RateUnit& unit : kUnits) {
    const std::string suffix = unit.suffix;
    if (!EndsWith(number, suffix)) continue;
    double value = 0;
    const std::string digits = number.substr(0, number.size() - suffix.size());
    const double limit = 1e15;
    if (!absl::SimpleAtod(digits, &value) || !std::isfinite(value) || value < 0 || value * unit.bytes > limit) break;
    return static_cast<int64_t>(std::llround(value * unit.bytes));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a rate; write bytes per second, or a number with kB, MB, GB, kbit, Mbit or Gbit "
                   "(1Gbit is 125000000 bytes per second)"));
}

absl::StatusOr<std::vector<int32_t>> ParseCores(const std::string& text) {
  std::vector<int32_t> cores;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int32_t first = 0;
    int32_t last = 0;
    if (ends.size() > 2 || !ParseCore(ends.front(), first) || !ParseCore(ends.back(), last) || last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not a list of cores; write numbers and ranges such as 0-3,6"));
    }
    for (int32_t core = first; core <= last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        return absl::InvalidArgumentError(absl::StrCat("core ", core, " stands twice in '", text, "'"));
      }
      cores.push_back(core);
    }
  }
  return cores;
}

}  // namespace lynx
