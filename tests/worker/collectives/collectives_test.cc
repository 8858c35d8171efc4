// Tests the results of collectives between ranks that are threads, over real loopback connections.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "common/rng.h"
#include "planner/problem/stage_context.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {
namespace {

// Returns a value that depends on rank, element and salt. Its mantissa is long, so the order of additions matters.
float ValueAt(int32_t rank, int64_t element, uint64_t salt) {
  const uint64_t bits = Mix64(salt * 1'000'003 + static_cast<uint64_t>(rank) * 7919 + static_cast<uint64_t>(element));
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23)) / 65536.0f;
}

std::vector<float> ValuesOf(int32_t rank, int64_t count, uint64_t salt) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = ValueAt(rank, i, salt);
  return values;
}

void AllReduceNow(Communicator& communicator, const Route& group, std::vector<float>& data) {
  const absl::StatusOr<TransferTicket> ticket =
      communicator.StartAllReduce(group, data.data(), static_cast<int64_t>(data.size()));
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const absl::StatusOr<TransferTimes> times = communicator.Wait(*ticket);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_LE(times->started.time, times->completed.time);
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
    for (int32_t rank = 1; rank < members && counts[c] > 0; ++rank) {
      ASSERT_EQ(0, std::memcmp(results[0][c].data(), results[rank][c].data(), counts[c] * sizeof(float)))
          << members << " members, count " << counts[c] << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, AllReduceTest, testing::Values(1, 2, 3, 4, 5, 8));

class AllGatherTest : public testing::TestWithParam<int32_t> {};

TEST_P(AllGatherTest, FillsEverySlotInTheOrderOfTheGroup) {
  const int32_t members = GetParam();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000}, int64_t{200'003}}) {
    std::vector<float> expected;
    for (int32_t rank = 0; rank < members; ++rank) {
      const std::vector<float> slot = ValuesOf(rank, count, 5);
      expected.insert(expected.end(), slot.begin(), slot.end());
    }
    RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
      std::vector<float> data(count * members, -1.0f);
      const std::vector<float> own = ValuesOf(rank, count, 5);
      std::copy(own.begin(), own.end(), data.begin() + count * rank);
      // In a world of one rank, `data` has only the slot of this rank.
      const absl::StatusOr<TransferTicket> ticket = communicator.StartAllGather(Group::kTensor, data.data(), count);
      ASSERT_TRUE(ticket.ok()) << ticket.status();
      ASSERT_TRUE(communicator.Wait(*ticket).ok());
      EXPECT_EQ(data, expected) << members << " members, count " << count << ", rank " << rank;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Members, AllGatherTest, testing::Values(1, 2, 3, 5));

class ReduceScatterTest : public testing::TestWithParam<int32_t> {};

TEST_P(ReduceScatterTest, SumsTheSlotOfEveryMember) {
  const int32_t members = GetParam();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000}, int64_t{200'003}}) {
    RunRanks(ParallelLayout{.tp = members}, [&](int32_t rank, Communicator& communicator) {
      std::vector<float> data = ValuesOf(rank, count * members, 6);
      const absl::StatusOr<TransferTicket> ticket = communicator.StartReduceScatter(Group::kTensor, data.data(), count);
      ASSERT_TRUE(ticket.ok()) << ticket.status();
      ASSERT_TRUE(communicator.Wait(*ticket).ok());
      for (int64_t i = rank * count; i < (rank + 1) * count; ++i) {
        double sum = 0;
        for (int32_t other = 0; other < members; ++other) sum += ValueAt(other, i, 6);
        ASSERT_NEAR(data[i], sum, 1e-3) << members << " members, count " << count << ", rank " << rank;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Members, ReduceScatterTest, testing::Values(1, 2, 3, 5));

// In a bidirectional pipeline, two ranks hold the same pieces. They reduce each piece on its own route, so the order of the
// pieces does not matter. Replicas take part too.
TEST(CollectivesTest, PiecesOfABidirectionalPipelineAreReducedInAnyOrder) {
  const ParallelLayout layout{.pp = 4, .dp = 2, .schedule = ScheduleKind::kChimera};
  RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
    const std::vector<int32_t> stages = StagesOfRank(layout, rank);
    ASSERT_EQ(stages.size(), 2u);
    std::vector<std::vector<float>> data(2, std::vector<float>(100));
    TransferTicket tickets[2];
    // Each rank reduces its chunk 0 first. The ranks of the other half of the pipeline hold the pieces in the opposite order.
    for (size_t chunk : {0u, 1u}) {
      const int32_t piece = PipelineOf(layout).PieceOf(stages[chunk]);
      data[chunk].assign(100, static_cast<float>((piece + 1) * (1 << rank)));
      tickets[chunk] = *communicator.StartAllReduce({Group::kData, stages[chunk]}, data[chunk].data(), 100);
    }
    for (size_t chunk : {0u, 1u}) {
      ASSERT_TRUE(communicator.Wait(tickets[chunk]).ok());
      const int32_t piece = PipelineOf(layout).PieceOf(stages[chunk]);
      const bool inner = piece == 1 || piece == 2;
      const int32_t members = inner ? (1 << 1) + (1 << 2) + (1 << 5) + (1 << 6) : (1 << 0) + (1 << 3) + (1 << 4) + (1 << 7);
      EXPECT_EQ(data[chunk], std::vector<float>(100, static_cast<float>((piece + 1) * members))) << "rank " << rank;
    }
  });
}

// Every boundary between virtual stages has its own route, even if the same two ranks share several boundaries.
TEST(CollectivesTest, BoundariesBetweenTheSameRanksDoNotHoldEachOtherUp) {
  const ParallelLayout layout{.pp = 2, .virtual_stages = 3, .schedule = ScheduleKind::kInterleaved};
  RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
    std::vector<int32_t> stages = StagesOfRank(layout, rank);
    // One rank goes through its stages from the lowest to the highest, the other one from the highest to the lowest.
    if (rank == 1) std::reverse(stages.begin(), stages.end());
    for (const int32_t stage : stages) {
      const float out = static_cast<float>(stage);
      if (stage == 5) continue;
      ASSERT_TRUE(communicator.Wait(*communicator.StartSend({Group::kNextStage, stage}, &out, 1)).ok());
    }
    for (const int32_t stage : stages) {
      float in = -1;
      if (stage == 0) continue;
      const TransferTicket ticket = *communicator.StartRecv({Group::kPreviousStage, stage}, &in, 1);
      ASSERT_TRUE(communicator.Wait(ticket).ok());
      EXPECT_EQ(in, static_cast<float>(stage - 1));
    }
  });
}

TEST(CollectivesTest, EveryGroupReducesOverItsOwnRanks) {
  for (const RankOrder order : {RankOrder::kTpPpDp, RankOrder::kTpDpPp}) {
    const ParallelLayout layout{.tp = 2, .pp = 2, .dp = 2, .rank_order = order};
    RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
      for (const Group group : {Group::kTensor, Group::kData, Group::kWorld}) {
        // Each rank adds its own power of two, so the sum shows which ranks took part.
        std::vector<float> data(10, static_cast<float>(1 << rank));
        AllReduceNow(communicator, group, data);
        const RankCoordinates own = CoordinatesOf(layout, rank);
        int32_t expected = 0;
        for (int32_t other = 0; other < layout.ranks(); ++other) {
          const RankCoordinates at = CoordinatesOf(layout, other);
          const bool together = group == Group::kWorld ||
                                (group == Group::kTensor && at.stage == own.stage && at.dp == own.dp) ||
                                (group == Group::kData && at.stage == own.stage && at.tp == own.tp);
          if (together) expected += 1 << other;
        }
        EXPECT_EQ(data, std::vector<float>(10, static_cast<float>(expected))) << "rank " << rank;
      }
    });
  }
}

// The ranks with the copies of a tied embedding add them up within a replica. The other ranks do nothing.
TEST(CollectivesTest, CopiesOfATiedEmbeddingAddUp) {
  for (const RankOrder order : {RankOrder::kTpPpDp, RankOrder::kTpDpPp}) {
    const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 2, .rank_order = order};
    RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
      std::vector<float> data(10, static_cast<float>(1 << rank));
      AllReduceNow(communicator, {Group::kData, kTiedEmbedding}, data);
      const RankCoordinates own = CoordinatesOf(layout, rank);
      int32_t expected = 1 << rank;
      if (own.stage != 1) expected += 1 << RankOf(layout, {own.tp, 2 - own.stage, own.dp});
      EXPECT_EQ(data, std::vector<float>(10, static_cast<float>(expected))) << "rank " << rank;
    });
  }
}

// Two ranks share the group of a tied embedding: those with the first and with the last piece. A rank is alone in its group if
// it holds both pieces or neither, or if two ranks hold the same pieces (Chimera).
TEST(TiedMembers, AreApartOnly) {
  EXPECT_EQ(TiedMembersOf({2, 3, 2}, 1).ranks, (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(TiedMembersOf({2, 3, 2}, 5).index, 1);
  EXPECT_EQ(TiedMembersOf({2, 3, 2}, 2).ranks, std::vector<int32_t>{2});
  EXPECT_EQ(TiedMembersOf({.tp = 2}, 1).ranks, std::vector<int32_t>{1});
  EXPECT_EQ(TiedMembersOf({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, 0).ranks, std::vector<int32_t>{0});
  EXPECT_EQ(TiedMembersOf({.pp = 2, .schedule = ScheduleKind::kChimera}, 1).ranks, std::vector<int32_t>{1});
  const ParallelLayout interleaved{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  EXPECT_EQ(TiedMembersOf(interleaved, 1).ranks, (std::vector<int32_t>{0, 1}));
}

TEST(CollectivesTest, ManyOperationsInFlightCompleteInOrder) {
  constexpr int kOperations = 100;
  RunRanks(ParallelLayout{.tp = 3}, [&](int32_t rank, Communicator& communicator) {
    std::vector<std::vector<float>> data;
    std::vector<TransferTicket> tickets;
    for (int i = 0; i < kOperations; ++i) data.push_back(std::vector<float>(i * 7, static_cast<float>(rank + i)));
    for (int i = 0; i < kOperations; ++i) {
      tickets.push_back(*communicator.StartAllReduce(Group::kTensor, data[i].data(), i * 7));
    }
    Nanos previous;
    for (int i = 0; i < kOperations; ++i) {
      const absl::StatusOr<TransferTimes> times = communicator.Wait(tickets[i]);
      ASSERT_TRUE(times.ok()) << times.status();
      EXPECT_LE(previous, times->completed.time);
      previous = times->completed.time;
      EXPECT_EQ(data[i], std::vector<float>(i * 7, static_cast<float>(3 + 3 * i)));
    }
  });
}

TEST(CollectivesTest, TicketsMayBeAwaitedInAnyOrder) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t, Communicator& communicator) {
    std::vector<float> first(1000, 1), second(1000, 2);
    const TransferTicket one = *communicator.StartAllReduce(Group::kTensor, first.data(), 1000);
    const TransferTicket two = *communicator.StartAllReduce(Group::kTensor, second.data(), 1000);
    ASSERT_TRUE(communicator.Wait(two).ok());
    EXPECT_EQ(second, std::vector<float>(1000, 4));
    ASSERT_TRUE(communicator.Wait(one).ok());
    EXPECT_EQ(first, std::vector<float>(1000, 2));
  });
}

TEST(CollectivesTest, StagesExchangeInOrderInBothDirectionsAtOnce) {
  constexpr int kMessages = 20;
  constexpr int64_t kCount = 50'000;  // 20 messages of this size are more than all socket buffers can hold
  RunRanks(ParallelLayout{.pp = 3}, [&](int32_t rank, Communicator& communicator) {
    std::vector<TransferTicket> tickets;
    std::vector<std::vector<float>> sent, from_previous, from_next;
    for (int i = 0; i < kMessages; ++i) {
      sent.push_back(ValuesOf(rank, kCount, i));
      from_previous.emplace_back(kCount);
      from_next.emplace_back(kCount);
    }
    for (int i = 0; i < kMessages; ++i) {
      if (rank < 2) {
        tickets.push_back(*communicator.StartSend(Group::kNextStage, sent[i].data(), kCount));
        tickets.push_back(*communicator.StartRecv(Group::kNextStage, from_next[i].data(), kCount));
      }
      if (rank > 0) {
        tickets.push_back(*communicator.StartSend(Group::kPreviousStage, sent[i].data(), kCount));
        tickets.push_back(*communicator.StartRecv(Group::kPreviousStage, from_previous[i].data(), kCount));
      }
    }
    for (const TransferTicket ticket : tickets) ASSERT_TRUE(communicator.Wait(ticket).ok());
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(rank == 2 || from_next[i] == ValuesOf(rank + 1, kCount, i)) << i;
      EXPECT_TRUE(rank == 0 || from_previous[i] == ValuesOf(rank - 1, kCount, i)) << i;
    }
  });
}

TEST(CollectivesTest, ANeighbourThatDoesNotExistIsAnError) {
  RunRanks(ParallelLayout{.pp = 2}, [&](int32_t rank, Communicator& communicator) {
    float value = 0;
    const Group beyond = rank == 0 ? Group::kPreviousStage : Group::kNextStage;
    EXPECT_EQ(communicator.StartSend(beyond, &value, 1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

TEST(CollectivesTest, AStalledReceiveHoldsNoOtherGroup) {
  RunRanks(ParallelLayout{.tp = 2, .pp = 2}, [&](int32_t rank, Communicator& communicator) {
    const bool first_stage = rank < 2;
    std::vector<float> boundary(300'000, first_stage ? 0.0f : 8.0f);
    TransferTicket stalled;
    if (first_stage) stalled = *communicator.StartRecv(Group::kNextStage, boundary.data(), 300'000);
    // The other stage sends only after all these collectives. So they can complete only if the pending receive does not block
    // them.
    for (int i = 0; i < 5; ++i) {
      std::vector<float> data(100'000, 1.0f);
      AllReduceNow(communicator, Group::kTensor, data);
      EXPECT_EQ(data, std::vector<float>(100'000, 2.0f));
    }
    ASSERT_TRUE(communicator.Barrier().ok());
    if (!first_stage) stalled = *communicator.StartSend(Group::kPreviousStage, boundary.data(), 300'000);
    ASSERT_TRUE(communicator.Wait(stalled).ok());
    EXPECT_EQ(boundary, std::vector<float>(300'000, 8.0f));
  });
}

TEST(CollectivesTest, ATransferGoesOnWhileNobodyWaits) {
  constexpr int64_t kCount = 2'000'000;  // far more than the socket buffers can hold
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t, Communicator& communicator) {
    std::vector<float> data(kCount, 1.0f);
    const TransferTicket ticket = *communicator.StartAllReduce(Group::kTensor, data.data(), kCount);
    // Both halves are sent before Wait is called. This rank sends the second half after it has added the peer's values to its
    // own.
    while (communicator.BytesSent() < kCount * 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const absl::StatusOr<TransferTimes> times = communicator.Wait(ticket);
    ASSERT_TRUE(times.ok());
    EXPECT_LT(times->started.time, times->completed.time);
    EXPECT_EQ(data, std::vector<float>(kCount, 2.0f));
  });
}

TEST(CollectivesTest, CountsTheBytesOnTheWire) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t, Communicator& communicator) {
    std::vector<float> data(1000, 1.0f);
    AllReduceNow(communicator, Group::kTensor, data);
    EXPECT_EQ(communicator.BytesSent(), 24 + 4000);
  });
}

int64_t ThreadCpuNanos() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

TEST(CollectivesTest, WaitingSleeps) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(1000, 1.0f);
    AllReduceNow(communicator, Group::kTensor, data);
    const auto begin = std::chrono::steady_clock::now();
    const int64_t cpu_before = ThreadCpuNanos() + communicator.ThreadCpuTime().value;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    AllReduceNow(communicator, Group::kTensor, data);
    const int64_t cpu = ThreadCpuNanos() + communicator.ThreadCpuTime().value - cpu_before;
    const std::chrono::nanoseconds wall = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(cpu, wall.count() / 5) << "a wait of " << wall.count() << " ns";
  });
}

TEST(CollectivesTest, PacingHoldsAConnectionBack) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.pp = 2});
  for (CommunicatorOptions& of_rank : options) of_rank.pacing_bytes_per_second = 20'000'000;
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(1'500'000, 1.0f);  // takes 300 ms at the paced rate
    const int64_t count = static_cast<int64_t>(data.size());
    const TransferTicket ticket = rank == 0 ? *communicator.StartSend(Group::kNextStage, data.data(), count)
                                            : *communicator.StartRecv(Group::kPreviousStage, data.data(), count);
    const absl::StatusOr<TransferTimes> times = communicator.Wait(ticket);
    ASSERT_TRUE(times.ok());
    // Without pacing the transfer takes a few milliseconds. Only the receiver sees the last byte arrive.
    if (rank == 0) return;
    EXPECT_GT(times->completed.time - times->started.time, Nanos(150'000'000));
  });
}

TEST(CollectivesTest, ABarrierWaitsForEveryRank) {
  constexpr int kRanks = 5;
  std::atomic<int> arrived{0};
  RunRanks(ParallelLayout{.tp = kRanks}, [&](int32_t rank, Communicator& communicator) {
    for (int round = 1; round <= 10; ++round) {
      if (rank == round % kRanks) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      ++arrived;
      ASSERT_TRUE(communicator.Barrier().ok());
      EXPECT_GE(arrived.load(), round * kRanks);
      ASSERT_TRUE(communicator.Barrier().ok());
    }
  });
}

TEST(CollectivesTest, AWorldOfOneNeedsNoSockets) {
  CommunicatorOptions options;
  options.secret = NewConnectionSecret();
  options.peers = {{"127.0.0.1", 0}};
  const absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  std::vector<float> data = {1, 2, 3};
  AllReduceNow(**communicator, Group::kWorld, data);
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE((*communicator)->Barrier().ok());
  EXPECT_EQ((*communicator)->BytesSent(), 0);
  EXPECT_EQ((*communicator)->ThreadCpuTime(), Nanos(0));
  (*communicator)->Abort(absl::CancelledError("enough"));
  EXPECT_EQ((*communicator)->Barrier(), absl::CancelledError("enough"));
}

}  // namespace
}  // namespace lynx::worker
