#include "cli/spec/scalar_advice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/real_text.h"

namespace lynx::cli {
namespace {

using Names = std::pair<const char*, const char*>;  // name in lower case -> the unit that is accepted

// A number and what follows it, in lower case and without spaces between them.
struct Written {
  std::string number, unit;
};
Written Split(const std::string& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit = absl::AsciiStrToLower(text.substr(end));
  unit = std::string(absl::StripAsciiWhitespace(unit));
  return {text.substr(0, end), unit};
}

std::string Write(const std::string& text) { return absl::StrCat("; write ", text); }

// Advice for a percentage, such as "80%": says to write 0.8.
std::string PercentAdvice(const std::string& text) {
  double percent;
  if (!absl::EndsWith(text, "%") || !absl::SimpleAtod(text.substr(0, text.size() - 1), &percent) || !std::isfinite(percent))
    return "";
  return Write(RealText(percent / 100));
}

// The text without the marks that people group digits by.
std::string Ungrouped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"_", ""}, {",", ""}, {"'", ""}, {" ", ""}});
}

bool IsDigits(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos; }

// Advice for a size with a unit that is not accepted. It says to write `number`, a correct unit ("GiB" or "GB") and `after`.
// If `unit` may mean both, the advice names both. "": `unit`, in lower case, is no unit of sizes.
std::string ByteUnits(const std::string& unit, const std::string& number, const std::string& after) {
  const size_t letter = std::string("kmgt").find(unit.substr(0, 1));
  const std::string rest = unit.empty() ? "" : unit.substr(1);
  if (unit.empty() || letter == std::string::npos) return "";
  const std::string binary = absl::StrCat(number, std::string(1, "KMGT"[letter]), "iB", after);
  const std::string decimal = absl::StrCat(number, std::string(1, "kMGT"[letter]), "B", after);
  if (rest == "ib" || rest == "i" || rest == "ibyte" || rest == "ibytes") return Write(binary);
  if (rest.empty() || rest == "b" || rest == "byte" || rest == "bytes") {
    return Write(absl::StrCat(binary, " (", number, " x 1024^", letter + 1, " bytes) or ", decimal, " (", number, " x 1000^",
                              letter + 1, ")"));
  }
  return "";
}

}  // namespace

std::string WholeNumberAdvice(const std::string& text) {
  if (const std::string plain = Ungrouped(text); plain != text && IsDigits(plain)) return Write(plain);
  double value;
  const bool real = absl::SimpleAtod(text, &value) && std::abs(value) < 9e15;
  if (real && value == std::floor(value)) return Write(absl::StrCat(static_cast<int64_t>(value)));
  const Written written = Split(text);
  if (real || !IsDigits(written.number) || written.unit.empty()) return "";
  if (written.unit == "k" || written.unit == "m" || written.unit == "g" || written.unit == "b") return "; write all digits";
  return absl::StrCat("; write the number alone, without '", text.substr(written.number.size()), "'");
}

std::string RealAdvice(const std::string& text) {
  if (const std::string percent = PercentAdvice(text); !percent.empty()) return percent;
  double value;
  const std::string with_point = absl::StrReplaceAll(text, {{",", "."}});
  if (with_point != text && absl::SimpleAtod(with_point, &value)) return Write(absl::StrCat(with_point, ", with a point"));
  if (const std::string plain = Ungrouped(text); plain != text && absl::SimpleAtod(plain, &value)) return Write(plain);
  return "";
}

std::string SizeAdvice(const std::string& text) {
  const Written written = Split(text);
  return written.number.empty() ? "" : ByteUnits(written.unit, written.number, "");
}

std::string ByteRateAdvice(const std::string& text) {
  Written written = Split(text);
  std::string& unit = written.unit;
  if (written.number.empty() || unit.empty()) return "";
  for (const char* per : {"/sec", "/s", "ps"}) {
    if (absl::EndsWith(unit, per)) {
      unit.resize(unit.size() - std::string(per).size());
      break;
    }
  }
  // A small "b" may mean bits or bytes: speeds of links are usually given in bits, with a small b.
  const bool bits = absl::StrContains(unit, "bit") || (unit.size() == 2 && absl::StrContains(text, "b"));
  const size_t letter = std::string("kmgt").find(unit.substr(0, 1));
  if (bits && letter != std::string::npos) {
    const std::string in_bits = absl::StrCat(written.number, std::string(1, "kMGT"[letter]), "bit/s");
    if (absl::StrContains(unit, "bit")) return Write(in_bits);
    return Write(absl::StrCat(in_bits, " or ", written.number, std::string(1, "kMGT"[letter]), "B/s (bytes)"));
  }
  return ByteUnits(unit, written.number, "/s");
}

std::string FlopRateAdvice(const std::string& text) {
  const Written written = Split(text);
  const size_t letter = std::string("mgtp").find(written.unit.substr(0, 1));
  if (written.number.empty() || written.unit.empty() || letter == std::string::npos) return "";
  const std::string rest = written.unit.substr(1);
  for (const char* unit : {"", "flop", "flops", "flop/s", "flops/s", "flop/sec"}) {
    if (rest == unit) return Write(absl::StrCat(written.number, std::string(1, "MGTP"[letter]), "FLOP/s"));
  }
  return "";
}

std::string DurationAdvice(const std::string& text) {
  const Written written = Split(text);
  if (absl::StrContains(written.unit, ":")) return "; write it in one unit, such as 90min or 12h";
  if (written.number.empty()) return "";
  if (written.unit.empty()) return absl::StrCat("; write its unit, such as ", written.number, "s or ", written.number, "min");
  constexpr Names kNames[] = {{"m", "min"},   {"mins", "min"},     {"minute", "min"},   {"minutes", "min"}, {"min", "min"},
                              {"hr", "h"},    {"hrs", "h"},        {"hour", "h"},       {"hours", "h"},     {"h", "h"},
                              {"sec", "s"},   {"secs", "s"},       {"second", "s"},     {"seconds", "s"},   {"s", "s"},
                              {"day", "d"},   {"days", "d"},       {"d", "d"},          {"msec", "ms"},     {"ms", "ms"},
                              {"usec", "us"}, {"\xc2\xb5s", "us"}, {"\xce\xbcs", "us"}, {"us", "us"},       {"nsec", "ns"},
                              {"ns", "ns"}};
  for (const auto& [name, unit] : kNames) {
    if (written.unit == name) return Write(absl::StrCat(written.number, unit));
  }
  return "";
}

}  // namespace lynx::cli
