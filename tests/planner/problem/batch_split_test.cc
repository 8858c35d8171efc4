#include "planner/problem/batch_split.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lynx {
namespace {

// Every sample is in exactly one replica, and every replica's samples fit into its microbatches; one microbatch less would be
// too few for some replica.
TEST(BatchSplit, DividesEverySampleOnce) {
  for (int32_t batch = 1; batch <= 40; ++batch) {
    for (int32_t replicas = 1; replicas <= batch; ++replicas) {
      for (int32_t size = 1; size <= 9; ++size) {
        const BatchSplit split{batch, replicas, size};
        SCOPED_TRACE(testing::Message() << batch << " samples, " << replicas << " replicas, micro-batch " << size);
        const int64_t places = int64_t{split.microbatches()} * size;
        int64_t most = 0, empty = 0;
        for (int32_t replica = 0; replica < replicas; ++replica) {
          const int64_t samples = split.FirstSample(replica + 1) - split.FirstSample(replica);
          most = std::max(most, samples);
          empty += places - samples;
          ASSERT_GE(samples, 1);
          ASSERT_LE(samples, places);
        }
        EXPECT_EQ(split.FirstSample(0), 0);
        EXPECT_EQ(split.FirstSample(replicas), batch);
        EXPECT_EQ(split.MaxSamples(), most);
        EXPECT_GT(most, places - size);
        EXPECT_EQ(split.EmptyPlaces(), empty);
        EXPECT_EQ(split.Even(), batch % (replicas * size) == 0);
        EXPECT_EQ(split.Possible(), size <= most);
      }
    }
  }
}

TEST(BatchSplit, EveryReplicaNeedsASample) {
  EXPECT_TRUE((BatchSplit{8, 8, 1}.Possible()));
  EXPECT_FALSE((BatchSplit{8, 9, 1}.Possible()));
  EXPECT_FALSE((BatchSplit{8, 3, 4}.Possible()));
}

// The largest values that a job may have.
TEST(BatchSplit, DoesNotOverflow) {
  const BatchSplit split{1 << 24, 16384, 3};
  EXPECT_EQ(split.FirstSample(16384), 1 << 24);
  EXPECT_EQ(split.EmptyPlaces(), int64_t{342} * 3 * 16384 - (1 << 24));
}

}  // namespace
}  // namespace lynx
