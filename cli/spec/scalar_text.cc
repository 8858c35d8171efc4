#include "cli/spec/scalar_text.h"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <cmath>
#include <utility>
#include <vector>

namespace lynx::cli {
namespace {

using Units = std::vector<std::pair<std::string, double>>;

// Reads a number that is at least zero, followed by one of the units. False: the text is not of this form.
bool ReadQuantity(const std::string& text, const Units& units, int64_t& out) {
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, unit_at);
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  for (const auto& [name, factor] : units) {
    if (name != unit) continue;
    double value;
    if (number.empty() || !absl::SimpleAtod(number, &value) || !(value * factor < 9e18)) return false;
    out = static_cast<int64_t>(std::llround(value * factor));
    return true;
  }
  return false;
}

const Units& SizeUnits() {
  static const auto& units =
      *new Units{{"", 1},     {"B", 1},    {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                 {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},   {"TB", 1e12}};
  return units;
}

const Units& ByteRateUnits() {
  static const auto& units = *new Units([] {
    Units all;
    for (const auto& [name, factor] : SizeUnits()) {
      if (!name.empty()) all.emplace_back(name + "/s", factor);
    }
    for (const auto& [name, factor] : Units{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}}) {
      all.emplace_back(name + "/s", factor / 8);
    }
    return all;
  }());
  return units;
}

const Units& FlopUnits() {
  static const auto& units = *new Units{{"MFLOP", 1e6}, {"GFLOP", 1e9}, {"TFLOP", 1e12}, {"PFLOP", 1e15}};
  return units;
}

const Units& FlopRateUnits() {
  static const auto& units = *new Units([] {
    Units all;
    for (const auto& [name, factor] : FlopUnits()) all.emplace_back(name + "/s", factor);
    return all;
  }());
  return units;
}

absl::StatusOr<int64_t> ParseRate(const std::string& text, const Units& units, const std::string& what,
                                  const std::string& advice) {
  int64_t value;
  if (!ReadQuantity(text, units, value)) return Expected(what, text, advice);
  if (value <= 0) return Expected(what, text);
  return value;
}

absl::StatusOr<int32_t> ParseThousandths(const std::string& text, double low, double high, const std::string& what) {
  double value;
  if (!absl::SimpleAtod(text, &value) || !(value >= low && value <= high)) return Expected(what, text, RealAdvice(text));
  return static_cast<int32_t>(std::lround(value * 1000));
}

}  // namespace

absl::Status Expected(const std::string& what, const std::string& got, const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found '", got, "'", advice));
}

absl::Status ReadSwitch(const std::string& text, bool& out) {
  const bool on = text == "true" || text == "on";
  if (!on && text != "false" && text != "off") return Expected("true or false", text);
  out = on;
  return absl::OkStatus();
}

absl::Status ReadReal(const std::string& text, double& out) {
  double value;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return Expected("a number", text, RealAdvice(text));
  out = value;
  return absl::OkStatus();
}

absl::StatusOr<Bytes> ParseByteSize(const std::string& text) {
  int64_t value;
  if (!ReadQuantity(text, SizeUnits(), value))
    return Expected("a size such as 512KiB, 24MiB, 1.5GiB or 100MB", text, SizeAdvice(text));
  return Bytes(value);
}

std::string ByteSizeText(Bytes bytes) {
  static const std::pair<const char*, Bytes> kUnits[] = {{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};
  for (const auto& [name, unit] : kUnits) {
    if (bytes.value != 0 && bytes.value % unit.value == 0) return absl::StrCat(bytes.value / unit.value, name);
  }
  return absl::StrCat(bytes.value);
}

absl::StatusOr<int64_t> ParseByteRate(const std::string& text) {
  return ParseRate(text, ByteRateUnits(), "a rate above zero such as 300GB/s or 200Gbit/s", ByteRateAdvice(text));
}

absl::StatusOr<int64_t> ParseFlopRate(const std::string& text) {
  return ParseRate(text, FlopRateUnits(), "a rate above zero such as 312TFLOP/s", FlopRateAdvice(text));
}

absl::StatusOr<int64_t> ParseFlops(const std::string& text) {
  return ParseRate(text, FlopUnits(), "an amount of work such as 1GFLOP", "");
}

absl::StatusOr<Nanos> ParseDuration(const std::string& text) {
  static const auto& units =
      *new Units{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
  int64_t value;
  if (text == "0") return Nanos(0);
  if (!ReadQuantity(text, units, value))
    return Expected("a duration such as 5us, 1.5ms, 90min or 12h", text, DurationAdvice(text));
  return Nanos(value);
}

std::string DurationText(Nanos duration) {
  if (duration == Nanos(0)) return "0";
  constexpr std::pair<const char*, int64_t> kUnits[] = {{"d", 86'400'000'000'000}, {"h", 3'600'000'000'000},
                                                        {"min", 60'000'000'000},   {"s", 1'000'000'000},
                                                        {"ms", 1'000'000},         {"us", 1'000}};
  for (const auto& [name, unit] : kUnits) {
    if (duration.value % unit == 0) return absl::StrCat(duration.value / unit, name);
  }
  return absl::StrCat(duration.value, "ns");
}

absl::StatusOr<int32_t> ParseShare(const std::string& text) {
  return ParseThousandths(text, 0.001, 1, "a number from 0.001 to 1");
}

absl::StatusOr<int32_t> ParseShareOrZero(const std::string& text) {
  return ParseThousandths(text, 0, 1, "a number from 0 to 1");
}

absl::StatusOr<int32_t> ParseSlowdown(const std::string& text) {
  return ParseThousandths(text, 1, 100, "a number from 1 to 100");
}

std::string QuotedText(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

}  // namespace lynx::cli
