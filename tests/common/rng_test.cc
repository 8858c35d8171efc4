#include "common/rng.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

// These are known results of the reference implementation (Random123, kat_vectors, philox4x32 10).
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox({ones, ones, ones, ones}, {ones, ones}), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace lynx
