#include "worker/backend/cpu/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lynx::worker::cpu {
namespace {

double UlpsOff(float got, double want) { return std::fabs(got - want) / std::ldexp(1.0, std::ilogb(want) - 23); }

TEST(Exp, IsWithinTwoUlpsOverItsRange) {
  double worst = 0;
  // Tests every 101st positive float from 2^-30 up to the largest argument, and the negative floats with the
  // same magnitudes down to -87.3.
  for (float x = 0x1p-30f; x < 88.0f; x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) + 101)) {
    worst = std::fmax(worst, UlpsOff(Exp(x), std::exp(static_cast<double>(x))));
    if (x < 87.3f) worst = std::fmax(worst, UlpsOff(Exp(-x), std::exp(-static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(Exp(0.0f), 1.0f);
}

TEST(Exp, IsZeroFarBelowAndKeepsNan) {
  EXPECT_EQ(Exp(-88.0f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace lynx::worker::cpu
