#include "common/hmac.h"

#include <gtest/gtest.h>

#include <string>

namespace lynx {
namespace {

std::string Hex(const Mac& mac) {
  std::string text;
  for (const char byte : mac) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// These are the test cases 1, 2 and 6 of RFC 4231.
TEST(HmacTest, IsThatOfTheStandard) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacTest, AnyBitMakesAnother) {
  const Mac mac = HmacSha256("key", "bytes");
  EXPECT_TRUE(SameMac(mac, HmacSha256("key", "bytes")));
  for (size_t i = 0; i < mac.size(); ++i) {
    Mac other = mac;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(SameMac(mac, other)) << i;
  }
}

TEST(HmacTest, RandomBytesAreNewEachTime) {
  Mac a{}, b{};
  FillRandom(a);
  FillRandom(b);
  EXPECT_FALSE(SameMac(a, b));
}

}  // namespace
}  // namespace lynx
