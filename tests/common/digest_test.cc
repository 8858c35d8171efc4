#include "common/digest.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

TEST(Digest, MatchesPublishedVector) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, IncrementalEqualsWhole) {
  Sha256 digest;
  digest.Update("a");
  digest.Update("bc");
  EXPECT_EQ(digest.FinishHex(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace lynx
