// Results of the collectives between ranks that are threads, over real loopback connections.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "common/rng.h"
#include "tests/worker/collectives/rank_threads.h"

namespace lynx {
namespace {

// A value that depends on rank, element and salt, with a mantissa that makes the order of additions matter.
float ValueAt(int32_t rank, int64_t element, uint64_t salt) {
  const uint64_t bits = Mix64(salt * 1'000'003 + static_cast<uint64_t>(rank) * 7919 + static_cast<uint64_t>(element));
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23)) / 65536.0f;
}

std::vector<float> ValuesOf(int32_t rank, int64_t count, uint64_t salt) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = ValueAt(rank, i, salt);
  return values;
}

void AllReduceNow(Communicator& communicator, Group group, std::vector<float>& data) {
  const absl::StatusOr<TransferTicket> ticket =
      communicator.StartAllReduce(group, data.data(), static_cast<int64_t>(data.size()));
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const absl::StatusOr<TransferTimes> times = communicator.Wait(*ticket);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_LE(times->started, times->completed);
}

class AllReduceTest : public testing::TestWithParam<int32_t> {};

TEST_P(AllReduceTest, SumsAnyCountWithTheSameBitsOnEveryMember) {
  const int32_t members = GetParam();
  const std::vector<int64_t> counts = {0, 1, 2, 3, 5, 7, 64, 1000, 1001, 65'537, 300'007, 1'048'576};
  std::vector<std::vector<std::vector<float>>> results(members);  // [rank][count]
  RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
    for (size_t c = 0; c < counts.size(); ++c) {
      std::vector<float> data = ValuesOf(rank, counts[c], c);
      AllReduceNow(communicator, Group::kTensor, data);
      results[rank].push_back(data);
    }
  });
  for (size_t c = 0; c < counts.size(); ++c) {
    for (int64_t i = 0; i < counts[c]; ++i) {
      double sum = 0;
      for (int32_t rank = 0; rank < members; ++rank) sum += ValueAt(rank, i, c);
      ASSERT_NEAR(results[0][c][i], sum, 1e-3) << members << " members, count " << counts[c] << ", element " << i;
    }
    for (int32_t rank = 1; rank < members; ++rank) {
      ASSERT_EQ(0, std::memcmp(results[0][c].data(), results[rank][c].data(), counts[c] * sizeof(float)))
          << members << " members, count " << counts[c] << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, AllReduceTest, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace lynx
