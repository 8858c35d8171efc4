// HMAC-SHA256 (RFC 2104), random bytes, and a comparison whose duration does not reveal how many bytes are equal. Thread-safe.
#ifndef LYNX_COMMON_HMAC_H_
#define LYNX_COMMON_HMAC_H_

#include <array>
#include <span>
#include <string_view>

namespace lynx {

using Mac = std::array<char, 32>;

Mac HmacSha256(std::string_view key, std::string_view bytes);
bool SameMac(const Mac& a, const Mac& b);
// Fills `bytes` with random bytes that are good enough for secrets.
void FillRandom(std::span<char> bytes);

}  // namespace lynx

#endif  // LYNX_COMMON_HMAC_H_
