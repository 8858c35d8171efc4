// Values as people write them in job and cluster files and on the command line: numbers, sizes, rates, durations. On
// failure each reader says what was expected and what was found. Each writer gives the shortest text that reads back as
// the same value. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_SCALAR_TEXT_H_
#define LYNX_CLI_SPEC_SCALAR_TEXT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/spec/scalar_advice.h"
#include "common/real_text.h"
#include "common/units.h"

namespace lynx::cli {

// Returns InvalidArgument with the text "expected WHAT, found 'GOT'" and the advice (scalar_advice.h).
absl::Status Expected(const std::string& what, const std::string& got, const std::string& advice = "");

template <class Int>
absl::Status ReadInt(const std::string& text, Int& out) {
  Int value;
  if (!absl::SimpleAtoi(text, &value)) {
    return Expected(absl::StrCat("a whole number up to ", std::numeric_limits<Int>::max()), text, WholeNumberAdvice(text));
  }
  out = value;
  return absl::OkStatus();
}

// Reads "true" or "on", "false" or "off".
absl::Status ReadSwitch(const std::string& text, bool& out);

// Reads a number; only finite numbers are accepted.
absl::Status ReadReal(const std::string& text, double& out);

// Reads a size in bytes, such as "24MiB", "1.5GiB", "512KiB", "100MB", "4096". Units: B; KiB, MiB, GiB, TiB (powers of 1024);
// kB, MB, GB, TB (powers of 1000, as in data sheets).
absl::StatusOr<Bytes> ParseByteSize(const std::string& text);
// The size in the largest binary unit in which it is a whole number, such as "24MiB"; without such a unit, the number of bytes.
std::string ByteSizeText(Bytes bytes);

// Reads a rate in bytes per second, above zero, such as "300GB/s", "25GiB/s", "200Gbit/s". Units: those of sizes, and kbit,
// Mbit, Gbit, Tbit, each with "/s".
absl::StatusOr<int64_t> ParseByteRate(const std::string& text);
// Reads a rate in FLOP per second, above zero, such as "312TFLOP/s", "67GFLOP/s". Units: MFLOP, GFLOP, TFLOP, PFLOP.
absl::StatusOr<int64_t> ParseFlopRate(const std::string& text);
// Reads a number of FLOP, above zero, such as "1GFLOP", "600MFLOP". Units: those of rates without "/s".
absl::StatusOr<int64_t> ParseFlops(const std::string& text);
// Reads a duration, such as "5us", "1.5ms", "20ns", "2s", "30min", "12h", "1.5d", "0".
absl::StatusOr<Nanos> ParseDuration(const std::string& text);
// The duration in the largest unit in which it is a whole number: "90min", "2d".
std::string DurationText(Nanos duration);
// Reads a number from 0.001 to 1, such as "0.83". Returns thousandths.
absl::StatusOr<int32_t> ParseShare(const std::string& text);
// Reads a number from 0 to 1. Returns thousandths.
absl::StatusOr<int32_t> ParseShareOrZero(const std::string& text);
// Reads a number from 1 to 100, such as "1.8". Returns thousandths.
absl::StatusOr<int32_t> ParseSlowdown(const std::string& text);

// Returns a YAML scalar in double quotes that reads back as the same text.
std::string QuotedText(const std::string& text);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_SCALAR_TEXT_H_
