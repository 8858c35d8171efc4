#include "common/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

// A row of the UTF-8 table: a range of lead bytes (`first` to `last`), the number of bytes that follow, and the bounds of the
// first of these bytes (`least` to `most`). Every later byte is in 80..BF.
struct Lead {
  uint8_t first, last, following, least, most;
};
constexpr std::array<Lead, 9> kLeads = {{{0x00, 0x7f, 0, 0, 0},
                                         {0xc2, 0xdf, 1, 0x80, 0xbf},
                                         {0xe0, 0xe0, 2, 0xa0, 0xbf},
                                         {0xe1, 0xec, 2, 0x80, 0xbf},
                                         {0xed, 0xed, 2, 0x80, 0x9f},
                                         {0xee, 0xef, 2, 0x80, 0xbf},
                                         {0xf0, 0xf0, 3, 0x90, 0xbf},
                                         {0xf1, 0xf3, 3, 0x80, 0xbf},
                                         {0xf4, 0xf4, 3, 0x80, 0x8f}}};

// Length in bytes of the character at the beginning of `text`; 0 if the character is not well-formed.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto lead =
      std::find_if(kLeads.begin(), kLeads.end(), [&](const Lead& l) { return byte(0) >= l.first && byte(0) <= l.last; });
  if (lead == kLeads.end() || text.size() <= lead->following) return 0;
  for (size_t i = 1; i <= lead->following; ++i) {
    const uint8_t least = i == 1 ? lead->least : 0x80, most = i == 1 ? lead->most : 0xbf;
    if (byte(i) < least || byte(i) > most) return 0;
  }
  return size_t{1} + lead->following;
}

// True if `text` begins with a control character of `bytes` bytes, or, if `bytes` is 0, with a byte that is not UTF-8.
bool IsControl(std::string_view text, size_t bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (bytes == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return bytes == 0 || (bytes == 2 && byte(0) == 0xc2 && byte(1) < 0xa0);
}

std::string WrittenOut(std::string_view text, size_t bytes) {
  if (text[0] == '\t') return " ";
  if (text[0] == '\n') return "\\n";
  if (text[0] == '\r') return "\\r";
  const char* kind = bytes == 2 ? "\\u00" : "\\x";
  return absl::StrCat(kind, absl::Hex(static_cast<uint8_t>(text[bytes == 2 ? 1 : 0]), absl::kZeroPad2));
}

std::string Visible(std::string_view text, bool keeps_lines) {
  std::string visible;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text), taken = std::max<size_t>(bytes, 1);
    if (IsControl(text, bytes) && !(keeps_lines && text[0] == '\n')) {
      visible += WrittenOut(text, bytes);
    } else {
      visible += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return visible;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

bool HasControls(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (IsControl(text, bytes)) return true;
    text.remove_prefix(bytes);
  }
  return false;
}

std::string VisibleLine(std::string_view text) { return Visible(text, false); }

std::string VisibleText(std::string_view text) { return Visible(text, true); }

}  // namespace lynx
