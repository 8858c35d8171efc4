#include "common/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/check.h"

namespace lynx {

Mac HmacSha256(std::string_view key, std::string_view bytes) {
  Mac mac;
  unsigned int length = 0;
  LYNX_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(bytes.data()),
                  bytes.size(), reinterpret_cast<unsigned char*>(mac.data()), &length) != nullptr);
  LYNX_CHECK(length == mac.size());
  return mac;
}

bool SameMac(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void FillRandom(std::span<char> bytes) {
  // This fails only if the kernel provides no random numbers. Then the process must not continue.
  LYNX_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1);
}

}  // namespace lynx
