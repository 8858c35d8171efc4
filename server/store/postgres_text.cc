// See postgres_text.h.
#include "server/store/postgres_text.h"

#include <cstdint>

namespace lynx::server {
namespace {

uint8_t At(const std::string& text, size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; }

bool IsBetween(uint8_t byte, uint8_t first, uint8_t last) { return byte >= first && byte <= last; }

// The length of the UTF-8 character at `i` (RFC 3629, section 4); 0: no character begins here.
size_t CharacterLength(const std::string& text, size_t i) {
  const uint8_t first = At(text, i), second = At(text, i + 1);
  if (first < 0x80) return 1;
  if (IsBetween(first, 0xC2, 0xDF)) return IsBetween(second, 0x80, 0xBF) ? 2 : 0;
  const bool third = IsBetween(At(text, i + 2), 0x80, 0xBF);
  if (IsBetween(first, 0xE0, 0xEF)) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;
    return IsBetween(second, low, high) && third ? 3 : 0;
  }
  if (!IsBetween(first, 0xF0, 0xF4)) return 0;
  const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
  return IsBetween(second, low, high) && third && IsBetween(At(text, i + 3), 0x80, 0xBF) ? 4 : 0;
}

// True if the character U+10FF00 to U+10FFFF stands at `i`.
bool IsReplacement(const std::string& text, size_t i) {
  return At(text, i) == 0xF4 && At(text, i + 1) == 0x8F && IsBetween(At(text, i + 2), 0xBC, 0xBF) &&
         IsBetween(At(text, i + 3), 0x80, 0xBF);
}

}  // namespace

std::string ToPostgresText(const std::string& text) {
  std::string stored;
  stored.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterLength(text, i);
    if (length > 0 && text[i] != '\0' && !IsReplacement(text, i)) {
      stored.append(text, i, length);
      i += length;
      continue;
    }
    const uint8_t byte = At(text, i++);
    stored += "\xF4\x8F";
    stored += static_cast<char>(0xBC + (byte >> 6));
    stored += static_cast<char>(0x80 + (byte & 0x3F));
  }
  return stored;
}

std::string FromPostgresText(const std::string& stored) {
  std::string text;
  text.reserve(stored.size());
  for (size_t i = 0; i < stored.size();) {
    if (IsReplacement(stored, i)) {
      text += static_cast<char>(((At(stored, i + 2) - 0xBC) << 6) | (At(stored, i + 3) - 0x80));
      i += 4;
    } else {
      text += stored[i++];
    }
  }
  return text;
}

}  // namespace lynx::server
