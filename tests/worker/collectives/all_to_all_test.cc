// Tests all-to-alls of the expert group between ranks that are threads, over real loopback connections.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

// Returns the element that rank `from` of the world sends to rank `to`. In a test all elements differ. They are small enough
// for bfloat16.
template <class T>
T ValueAt(int32_t from, int32_t to, int64_t element) {
  return T(static_cast<float>(from * 16 + to) + static_cast<float>(element % 2) * 0.5f);
}

template <class T>
std::vector<T> SlotsToSend(const GroupMembers& group, int32_t rank, int64_t count) {
  std::vector<T> slots;
  for (const int32_t to : group.ranks) {
    for (int64_t i = 0; i < count; ++i) slots.push_back(ValueAt<T>(rank, to, i));
  }
  return slots;
}

template <class T>
std::vector<T> SlotsToReceive(const GroupMembers& group, int32_t rank, int64_t count) {
  std::vector<T> slots;
  for (const int32_t from : group.ranks) {
    for (int64_t i = 0; i < count; ++i) slots.push_back(ValueAt<T>(from, rank, i));
  }
  return slots;
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void ExpectAllToAlls(const ParallelLayout& layout) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
  for (CommunicatorOptions& of_rank : options) of_rank.experts = true;
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    const GroupMembers group = MembersOf(layout, rank, Group::kExpert);
    ASSERT_EQ(static_cast<int32_t>(group.ranks.size()), layout.ep);
    for (const int64_t count : {0, 1, 3, 1000, 200'003}) {
      SCOPED_TRACE(testing::Message() << LayoutText(layout) << ", rank " << rank << ", count " << count);
      const std::vector<T> send = SlotsToSend<T>(group, rank, count);
      std::vector<T> receive(send.size(), T(-1.0f));
      const int64_t before = communicator.BytesSent();
      const absl::StatusOr<TransferTicket> ticket =
          communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), count);
      ASSERT_TRUE(ticket.ok()) << ticket.status();
      const absl::StatusOr<TransferTimes> times = communicator.Wait(*ticket);
      ASSERT_TRUE(times.ok()) << times.status();
      EXPECT_LE(times->started.time, times->completed.time);
      EXPECT_TRUE(SameBits(receive, SlotsToReceive<T>(group, rank, count)));
      EXPECT_TRUE(SameBits(send, SlotsToSend<T>(group, rank, count))) << "the buffer to send must not change";
      // Each slot for another member is sent once, after a header.
      const int64_t slot_bytes = count * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(kOperationHeaderBytes);
      EXPECT_EQ(communicator.BytesSent() - before, (layout.ep - 1) * slot_bytes);
    }
  });
}

class AllToAllTest : public testing::TestWithParam<ParallelLayout> {};

TEST_P(AllToAllTest, MovesEverySlotOfFloats) { ExpectAllToAlls<float>(GetParam()); }
TEST_P(AllToAllTest, MovesEverySlotOfBfloat16) { ExpectAllToAlls<Bfloat16>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Layouts, AllToAllTest,
                         testing::Values(ParallelLayout{}, ParallelLayout{.dp = 2}, ParallelLayout{.dp = 2, .ep = 2},
                                         ParallelLayout{.dp = 3, .ep = 3}, ParallelLayout{.dp = 4, .ep = 4},
                                         ParallelLayout{.dp = 5, .ep = 5}, ParallelLayout{.dp = 4, .ep = 2},
                                         ParallelLayout{.tp = 2, .dp = 2, .ep = 4}, ParallelLayout{.tp = 2, .pp = 2, .ep = 2},
                                         ParallelLayout{.pp = 2, .dp = 3, .ep = 3, .rank_order = RankOrder::kTpDpPp}));

// Every member starts many all-to-alls of different sizes before it waits for the first. They complete in order.
TEST(AllToAll, ManyInFlightCompleteInOrder) {
  constexpr int64_t kOperations = 100;
  const ParallelLayout layout{.dp = 3, .ep = 3};
  RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
    const GroupMembers group = MembersOf(layout, rank, Group::kExpert);
    std::vector<std::vector<float>> send, receive;
    for (int64_t i = 0; i < kOperations; ++i) {
      send.push_back(SlotsToSend<float>(group, rank, i * 7));
      receive.emplace_back(send.back().size());
    }
    std::vector<TransferTicket> tickets;
    for (size_t i = 0; i < kOperations; ++i) {
      const auto count = static_cast<int64_t>(i) * 7;
      tickets.push_back(*communicator.StartAllToAll(Group::kExpert, send[i].data(), receive[i].data(), count));
    }
    Nanos previous;
    for (size_t i = 0; i < kOperations; ++i) {
      const absl::StatusOr<TransferTimes> times = communicator.Wait(tickets[i]);
      ASSERT_TRUE(times.ok()) << times.status();
      EXPECT_LE(previous, times->completed.time);
      previous = times->completed.time;
      EXPECT_EQ(receive[i], SlotsToReceive<float>(group, rank, static_cast<int64_t>(i) * 7)) << i;
    }
  });
}

// All-to-alls and rings of the expert group have one lane, so they stay in order. Other routes carry transfers at the same
// time.
TEST(AllToAll, OtherTransfersRunBesideIt) {
  constexpr int64_t kCount = 60'000;
  const ParallelLayout layout{.tp = 2, .dp = 2, .ep = 4};
  RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
    const GroupMembers group = MembersOf(layout, rank, Group::kExpert);
    const std::vector<float> send = SlotsToSend<float>(group, rank, kCount);
    std::vector<std::vector<float>> receive(5, std::vector<float>(send.size()));
    std::vector<std::vector<float>> sums(15, std::vector<float>(kCount, static_cast<float>(1 << rank)));
    std::vector<TransferTicket> tickets;
    for (size_t i = 0; i < receive.size(); ++i) {
      tickets.push_back(*communicator.StartAllReduce(Group::kTensor, sums[3 * i].data(), kCount));
      tickets.push_back(*communicator.StartAllToAll(Group::kExpert, send.data(), receive[i].data(), kCount));
      tickets.push_back(*communicator.StartAllReduce(Group::kData, sums[3 * i + 1].data(), kCount));
      tickets.push_back(*communicator.StartAllReduce(Group::kExpert, sums[3 * i + 2].data(), kCount));
    }
    for (const TransferTicket ticket : tickets) ASSERT_TRUE(communicator.Wait(ticket).ok());
    for (size_t i = 0; i < receive.size(); ++i) {
      EXPECT_EQ(receive[i], SlotsToReceive<float>(group, rank, kCount));
      EXPECT_EQ(sums[3 * i][kCount - 1], rank < 2 ? 3.0f : 12.0f);
      EXPECT_EQ(sums[3 * i + 1][kCount - 1], rank % 2 == 0 ? 5.0f : 10.0f);
      EXPECT_EQ(sums[3 * i + 2][kCount - 1], 15.0f);
    }
  });
}

// One member starts late. Only the other members of its group wait for it; transfers on other routes continue.
TEST(AllToAll, AMemberThatIsLateHoldsNoOtherGroup) {
  const ParallelLayout layout{.dp = 3, .ep = 3};
  RunRanks(layout, [&](int32_t rank, Communicator& communicator) {
    const GroupMembers group = MembersOf(layout, rank, Group::kExpert);
    const std::vector<float> send = SlotsToSend<float>(group, rank, 100'000);
    std::vector<float> receive(send.size());
    TransferTicket ticket;
    if (rank != 1) ticket = *communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), 100'000);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(communicator.Barrier().ok());
    if (rank == 1) ticket = *communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), 100'000);
    ASSERT_TRUE(communicator.Wait(ticket).ok());
    EXPECT_EQ(receive, SlotsToReceive<float>(group, rank, 100'000));
  });
}

// The ranks that hold the same experts sum and gather like replicas.
TEST(ExpertData, ReducesScattersAndGathersOverTheRanksWithTheSameExperts) {
  for (const auto& [layout, experts] :
       {std::pair(ParallelLayout{.tp = 2, .dp = 3, .ep = 2}, false), std::pair(ParallelLayout{.dp = 4, .ep = 2}, false),
        std::pair(ParallelLayout{.tp = 2, .dp = 2, .sequence_parallel = true}, true)}) {
    SCOPED_TRACE(LayoutText(layout));
    std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
    for (CommunicatorOptions& of_rank : options) of_rank.experts = experts;
    RunRanks(options, [&, of = layout](int32_t rank, Communicator& communicator) {
      const GroupMembers group = MembersOf(of, rank, Group::kExpertData);
      const auto members = static_cast<int64_t>(group.ranks.size());
      ASSERT_EQ(members, ExpertReplicas(of));
      float sum = 0;
      for (const int32_t member : group.ranks) sum += static_cast<float>(1 << member);
      std::vector<float> reduced(100, static_cast<float>(1 << rank)),
          scattered(static_cast<size_t>(members) * 10, static_cast<float>(1 << rank));
      std::vector<float> gathered(static_cast<size_t>(members)), expected;
      gathered[static_cast<size_t>(group.index)] = static_cast<float>(rank);
      for (const int32_t member : group.ranks) expected.push_back(static_cast<float>(member));
      ASSERT_TRUE(communicator.Wait(*communicator.StartAllReduce(Group::kExpertData, reduced.data(), 100)).ok());
      ASSERT_TRUE(communicator.Wait(*communicator.StartReduceScatter(Group::kExpertData, scattered.data(), 10)).ok());
      ASSERT_TRUE(communicator.Wait(*communicator.StartAllGather(Group::kExpertData, gathered.data(), 1)).ok());
      EXPECT_EQ(reduced, std::vector<float>(100, sum));
      EXPECT_EQ(scattered[static_cast<size_t>(group.index) * 10 + 9], sum);
      EXPECT_EQ(gathered, expected);
    });
  }
}

}  // namespace
}  // namespace lynx::worker
