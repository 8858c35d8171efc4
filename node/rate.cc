#include "node/rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

constexpr int32_t kMaxCore = 4095;

constexpr double kMaxBytes = 1e15;

struct Unit {
  const char* suffix;
  double bytes;
};
// Longer suffixes come first, because "Gbit" ends in "bit".
constexpr Unit kRateUnits[] = {{"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}, {"bit", 1.0 / 8}, {"kB", 1e3},
                               {"MB", 1e6},       {"GB", 1e9},       {"B", 1},          {"", 1}};

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

constexpr Unit kSizeUnits[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"", 1}};

// Parses a number with one of the units. Returns false for any other text.
template <size_t kCount>
bool ParseQuantity(const std::string& text, const Unit (&units)[kCount], int64_t& bytes) {
  for (const Unit& unit : units) {
    const std::string suffix = unit.suffix;
    if (!EndsWith(text, suffix)) continue;
    double value = 0;
    const bool number = absl::SimpleAtod(text.substr(0, text.size() - suffix.size()), &value);
    if (!number || !std::isfinite(value) || value < 0 || value * unit.bytes > kMaxBytes) return false;
    bytes = static_cast<int64_t>(std::llround(value * unit.bytes));
    return true;
  }
  return false;
}

bool ParseCore(const std::string& text, int32_t& core) {
  return absl::SimpleAtoi(text, &core) && core >= 0 && core <= kMaxCore;
}

}  // namespace

absl::StatusOr<int64_t> ParseRate(const std::string& text) {
  if (text.empty()) return 0;
  int64_t bytes = 0;
  const std::string number = EndsWith(text, "/s") ? text.substr(0, text.size() - 2) : text;
  if (ParseQuantity(number, kRateUnits, bytes)) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "' is not a rate; write bytes per second, or a number with kB, MB, GB, kbit, Mbit or Gbit "
                   "(1Gbit is 125000000 bytes per second)"));
}

absl::StatusOr<Bytes> ParseBytes(const std::string& text) {
  int64_t bytes = 0;
  if (text.empty() || ParseQuantity(text, kSizeUnits, bytes)) return Bytes(bytes);
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a size; write bytes, or a number with KiB, MiB or GiB"));
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
