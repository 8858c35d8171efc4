// Tests collectives of bfloat16 between ranks that are threads, against sums in double.
//
// A partial sum is rounded when a member passes it on, which happens members - 1 times. Each rounding changes it by at most
// kBfloat16Rounding of its value, and a partial sum is at most the sum of the magnitudes. So the error has a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/rng.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/reduce.h"

namespace lynx::worker {
namespace {

Bfloat16 ValueAt(int32_t rank, int64_t element, uint64_t salt) {
  const uint64_t bits = Mix64(salt * 1'000'003 + static_cast<uint64_t>(rank) * 7919 + static_cast<uint64_t>(element));
  return Bfloat16(static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23)) / 65536.0f);
}

std::vector<Bfloat16> ValuesOf(int32_t rank, int64_t count, uint64_t salt) {
  std::vector<Bfloat16> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = ValueAt(rank, i, salt);
  return values;
}

std::vector<uint16_t> BitsOf(const std::vector<Bfloat16>& values) {
  std::vector<uint16_t> bits;
  for (const Bfloat16 value : values) bits.push_back(value.bits);
  return bits;
}

void ExpectSum(Bfloat16 got, int32_t members, int64_t element, uint64_t salt) {
  double sum = 0, magnitude = 0;
  for (int32_t rank = 0; rank < members; ++rank) {
    const double value = ValueAt(rank, element, salt);
    sum += value;
    magnitude += std::fabs(value);
  }
  ASSERT_NEAR(got, sum, (members - 1) * kBfloat16Rounding * magnitude) << members << " members, element " << element;
}

class Bfloat16Collectives : public testing::TestWithParam<int32_t> {
 protected:
  const int32_t members = GetParam();
  const std::vector<int64_t> counts = {0, 1, 2, 3, 5, 7, 64, 1001, 300'007};
};

TEST_P(Bfloat16Collectives, AllReduceGivesTheSameBitsToAll) {
  std::vector<std::vector<std::vector<Bfloat16>>> results(members);  // [rank][count]
  RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
    for (size_t c = 0; c < counts.size(); ++c) {
      std::vector<Bfloat16> data = ValuesOf(rank, counts[c], c);
      ASSERT_TRUE(communicator.Wait(*communicator.StartAllReduce(Group::kTensor, data.data(), counts[c])).ok());
      results[rank].push_back(data);
    }
  });
  for (size_t c = 0; c < counts.size(); ++c) {
    for (int64_t i = 0; i < counts[c]; ++i) ExpectSum(results[0][c][i], members, i, c);
    for (int32_t rank = 1; rank < members; ++rank) EXPECT_EQ(BitsOf(results[rank][c]), BitsOf(results[0][c]));
  }
}

TEST_P(Bfloat16Collectives, ReduceScatterSumsTheSlotOfEveryMember) {
  for (const int64_t count : counts) {
    RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
      std::vector<Bfloat16> data = ValuesOf(rank, count * members, 6);
      ASSERT_TRUE(communicator.Wait(*communicator.StartReduceScatter(Group::kTensor, data.data(), count)).ok());
      for (int64_t i = rank * count; i < (rank + 1) * count; ++i) ExpectSum(data[i], members, i, 6);
    });
  }
}

TEST_P(Bfloat16Collectives, AllGatherFillsEverySlot) {
  for (const int64_t count : counts) {
    std::vector<uint16_t> expected;
    for (int32_t rank = 0; rank < members; ++rank) {
      const std::vector<uint16_t> slot = BitsOf(ValuesOf(rank, count, 5));
      expected.insert(expected.end(), slot.begin(), slot.end());
    }
    RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
      std::vector<Bfloat16> data(count * members, Bfloat16(-1.0f));
      const std::vector<Bfloat16> own = ValuesOf(rank, count, 5);
      std::copy(own.begin(), own.end(), data.begin() + count * rank);
      ASSERT_TRUE(communicator.Wait(*communicator.StartAllGather(Group::kTensor, data.data(), count)).ok());
      EXPECT_EQ(BitsOf(data), expected) << members << " members, count " << count << ", rank " << rank;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Members, Bfloat16Collectives, testing::Values(1, 2, 3, 5));

// A message has half the bytes of a message of fp32, except for its header.
TEST(Bfloat16Transfers, SendsArriveInHalfTheBytes) {
  constexpr int64_t kCount = 100'001;
  RunRanks(ParallelLayout{.pp = 2}, [&](int32_t rank, Communicator& communicator) {
    std::vector<Bfloat16> data = ValuesOf(0, rank == 0 ? kCount : 0, 1);
    data.resize(kCount);
    const absl::StatusOr<TransferTicket> ticket = rank == 0
                                                      ? communicator.StartSend(Group::kNextStage, data.data(), kCount)
                                                      : communicator.StartRecv(Group::kPreviousStage, data.data(), kCount);
    ASSERT_TRUE(communicator.Wait(*ticket).ok());
    EXPECT_EQ(BitsOf(data), BitsOf(ValuesOf(0, kCount, 1)));
    if (rank == 0) {
      EXPECT_LT(communicator.BytesSent(), kCount * 2 + 100);
    }
  });
}

TEST(Bfloat16Transfers, RanksThatDisagreeOnTheTypeFindOut) {
  std::vector<absl::Status> statuses(2);
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> wide(10, 1.0f);
    std::vector<Bfloat16> narrow = ValuesOf(rank, 10, 1);
    const Elements data = rank == 0 ? Elements(wide.data()) : Elements(narrow.data());
    statuses[rank] = communicator.Wait(*communicator.StartAllReduce(Group::kTensor, data, 10)).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("elements of bfloat16"), std::string::npos) << status;
    EXPECT_NE(status.message().find("elements of float32"), std::string::npos) << status;
  }
}

// The elements are added in fp32 and rounded once. Every length is tested, because the loop is vectorised.
TEST(Bfloat16Reduce, AddsInFloat) {
  for (int64_t count = 0; count < 70; ++count) {
    std::vector<Bfloat16> target = ValuesOf(0, count, 3);
    const std::vector<Bfloat16> source = ValuesOf(1, count, 3);
    std::vector<uint16_t> expected;
    for (int64_t i = 0; i < count; ++i) {
      expected.push_back(Bfloat16(static_cast<float>(target[i]) + static_cast<float>(source[i])).bits);
    }
    AddInto(target.data(), source.data(), count);
    EXPECT_EQ(BitsOf(target), expected);
  }
}

}  // namespace
}  // namespace lynx::worker
