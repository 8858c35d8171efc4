#include "common/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/rng.h"

namespace lynx {
namespace {

float Widened(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

TEST(Bfloat16, EveryValueWidensAndRoundsBackToItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Widened(bits);
    const Bfloat16 rounded(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(rounded))) << bits;
      EXPECT_EQ(rounded.bits, bits | 0x40) << "quiet, with its payload";
    } else {
      EXPECT_EQ(rounded.bits, bits);
    }
  }
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  for (uint64_t i = 0; i < 200'000; ++i) {
    const auto word = static_cast<uint32_t>(Mix64(i));
    const auto value = std::bit_cast<float>(word);
    if (!std::isfinite(value)) continue;
    const float below = Widened(word >> 16), above = Widened((word >> 16) + 1);  // below and above in magnitude
    const double to_below = std::fabs(static_cast<double>(value) - below);
    const double to_above = std::isinf(above) ? std::ldexp(1.0, 120) - to_below  // the distance if there were another neighbour
                                              : std::fabs(static_cast<double>(above) - value);
    const auto got = static_cast<float>(Bfloat16(value));
    if (to_below < to_above) {
      EXPECT_EQ(got, below) << value;
    } else if (to_above < to_below) {
      EXPECT_EQ(got, above) << value;
    }
    if (std::isnormal(value) && std::isfinite(got)) {
      EXPECT_LE(std::fabs(got - value), kBfloat16Rounding * std::fabs(value));
    }
  }
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // half way between two numbers: rounds to the even one
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(Bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
}

TEST(Bfloat16, EndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(Bfloat16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(static_cast<float>(Bfloat16(-infinity)), -infinity);
  EXPECT_EQ(Bfloat16(-0.0f).bits, 0x8000);
  // The payload of this NaN is in bits that rounding drops.
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace
}  // namespace lynx
