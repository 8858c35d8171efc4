#include "worker/data/sample_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace lynx::worker {
namespace {

std::vector<int64_t> EpochOf(int64_t samples, int64_t epoch, uint64_t seed) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < samples; ++i) order.push_back(SampleAt(i, samples, epoch, seed));
  return order;
}

TEST(SampleOrder, IsAPermutation) {
  for (const int64_t samples : {1, 2, 3, 4, 5, 7, 8, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4097}) {
    for (const int64_t epoch : {0, 1, 17}) {
      std::vector<int> seen(static_cast<size_t>(samples));
      for (const int64_t sample : EpochOf(samples, epoch, 99)) {
        ASSERT_GE(sample, 0);
        ASSERT_LT(sample, samples);
        ++seen[static_cast<size_t>(sample)];
      }
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(samples), 1)) << samples;
    }
  }
}

TEST(SampleOrder, DiffersBetweenEpochsAndSeedsAndIsPure) {
  for (const int64_t samples : {64, 1000}) {
    EXPECT_EQ(EpochOf(samples, 3, 5), EpochOf(samples, 3, 5));
    EXPECT_NE(EpochOf(samples, 3, 5), EpochOf(samples, 4, 5));
    EXPECT_NE(EpochOf(samples, 3, 5), EpochOf(samples, 3, 6));
  }
}

// A random permutation has on average one fixed point, and one pair of neighbours that stay neighbours in the same order.
TEST(SampleOrder, LooksShuffled) {
  const std::vector<int64_t> order = EpochOf(1000, 0, 1234);
  int fixed = 0, neighbours = 0;
  double displacement = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    fixed += order[i] == static_cast<int64_t>(i);
    neighbours += i > 0 && order[i] == order[i - 1] + 1;
    displacement += std::abs(static_cast<double>(order[i]) - static_cast<double>(i));
  }
  EXPECT_LT(fixed, 8);
  EXPECT_LT(neighbours, 8);
  EXPECT_NEAR(displacement / 1000, 333, 40);
}

// With three samples, each sample is about equally often the first one, over many epochs.
TEST(SampleOrder, IsUniformForThreeSamples) {
  std::vector<int> first(3);
  for (int64_t epoch = 0; epoch < 3000; ++epoch) ++first[static_cast<size_t>(SampleAt(0, 3, epoch, 7))];
  for (const int count : first) EXPECT_NEAR(count, 1000, 130);
}

TEST(SampleOrder, HoldsForVeryLargeEpochs) {
  const int64_t samples = int64_t{1} << 62;
  EXPECT_LT(SampleAt(samples - 1, samples, 0, 1), samples);
  EXPECT_GE(SampleAt(samples - 1, samples, 0, 1), 0);
  EXPECT_LT(SampleAt((int64_t{1} << 40), (int64_t{1} << 40) + 1, 0, 1), (int64_t{1} << 40) + 1);
}

}  // namespace
}  // namespace lynx::worker
