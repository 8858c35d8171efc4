#include "worker/data/data_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lynx::worker {
namespace {

using testing::HasSubstr;

std::span<const std::byte> AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }
std::span<const std::byte> AsBytes(const std::vector<std::byte>& bytes) { return bytes; }

std::string DigestOf(const auto& file) { return FingerprintOf(DataKind::kText, {AsBytes(file)}).sha256; }

TEST(DataFingerprint, SaysWhatTheDataIs) {
  const DataFingerprint fingerprint = FingerprintOf(DataKind::kMegatron, {AsBytes("index"), AsBytes("tokens")});
  EXPECT_EQ(fingerprint.kind, DataKind::kMegatron);
  EXPECT_EQ(fingerprint.bytes, Bytes(11));
  EXPECT_EQ(fingerprint.sha256.size(), 64u);
  EXPECT_EQ(fingerprint, FingerprintOf(DataKind::kMegatron, {AsBytes("index"), AsBytes("tokens")}));
  EXPECT_THAT(FingerprintText(fingerprint), HasSubstr("megatron of 11 bytes, SHA-256 " + fingerprint.sha256.substr(0, 16)));
}

TEST(DataFingerprint, EveryByteOfAFileOfOrdinarySizeCounts) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    EXPECT_NE(DigestOf(other), DigestOf(text)) << i;
  }
  EXPECT_NE(DigestOf(text + " "), DigestOf(text));
  // Both data sets have the same bytes, but they are divided into files differently.
  EXPECT_NE(FingerprintOf(DataKind::kMegatron, {AsBytes("ab"), AsBytes("c")}).sha256,
            FingerprintOf(DataKind::kMegatron, {AsBytes("a"), AsBytes("bc")}).sha256);
}

// If a file is larger than the limit, its fingerprint covers its size, its beginning, its end, and blocks between them.
TEST(DataFingerprint, AHugeFileIsSampled) {
  const int64_t covered = kFingerprintBlock.value * kFingerprintBlocks;
  const std::vector<std::byte> whole(static_cast<size_t>(covered * 3 + 12'345));
  const std::string digest = DigestOf(whole);
  const auto changes = [&](size_t at) {
    std::vector<std::byte> other = whole;
    other[at] = std::byte{1};
    return DigestOf(other) != digest;
  };
  EXPECT_TRUE(changes(0));
  EXPECT_TRUE(changes(whole.size() - 1));
  // The distance between blocks is about three lengths of a block. So a change of this length always touches a block.
  std::vector<std::byte> other = whole;
  std::fill_n(other.begin() + covered, 3 * kFingerprintBlock.value, std::byte{1});
  EXPECT_NE(DigestOf(other), digest);
  EXPECT_NE(DigestOf(std::vector<std::byte>(whole.size() + 1)), digest);
  EXPECT_NE(DigestOf(std::vector<std::byte>(whole.size() - 1)), digest);

  const std::vector<std::byte> largest_covered(static_cast<size_t>(covered));
  std::vector<std::byte> one_byte_other = largest_covered;
  one_byte_other[one_byte_other.size() / 2] = std::byte{1};
  EXPECT_NE(DigestOf(one_byte_other), DigestOf(largest_covered));
}

}  // namespace
}  // namespace lynx::worker
