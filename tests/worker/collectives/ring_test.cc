// Tests the streams of ring collectives without a network: the streams of neighbours must fit together, and their effect must
// be the promised one.
#include "worker/collectives/ring.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lynx::worker {
namespace {

std::vector<int64_t> BytesInOrder(const std::vector<StreamPart>& parts) {
  std::vector<int64_t> offsets;
  for (const StreamPart& part : parts) {
    for (int64_t i = 0; i < part.bytes; ++i) offsets.push_back(part.offset + i);
  }
  return offsets;
}

using PlanFunction = StreamPlan (*)(int32_t, int32_t, int64_t, int64_t, StreamPlan);

void ExpectNeighboursFit(PlanFunction plan_of, int32_t members, int64_t count, int64_t element_bytes) {
  for (int32_t index = 0; index < members; ++index) {
    SCOPED_TRACE(testing::Message() << members << " members, index " << index << ", count " << count);
    const StreamPlan plan = plan_of(members, index, count, element_bytes, {});
    const StreamPlan next = plan_of(members, (index + 1) % members, count, element_bytes, {});
    const std::vector<int64_t> outgoing = BytesInOrder(plan.outgoing);
    const std::vector<int64_t> incoming = BytesInOrder(plan.incoming);
    EXPECT_EQ(outgoing, BytesInOrder(next.incoming));
    // After its first chunk, a member sends exactly the bytes that it has received before.
    for (size_t k = plan.free_bytes; k < outgoing.size(); ++k) {
      ASSERT_EQ(outgoing[k], incoming[k - plan.free_bytes]) << "byte " << k;
    }
  }
}

TEST(RingTest, EveryMemberPassesOnWhatItReceived) {
  for (int32_t members = 1; members <= 6; ++members) {
    for (int64_t count = 0; count <= 20; ++count) {
      for (const int64_t element_bytes : {2, 4}) {
        ExpectNeighboursFit(&PlanRingAllReduce, members, count, element_bytes);
        ExpectNeighboursFit(&PlanRingAllGather, members, count, element_bytes);
        ExpectNeighboursFit(&PlanRingReduceScatter, members, count, element_bytes);
      }
    }
  }
}

// In every step, what a member sends is what the member that it sends to receives. All steps together move every slot once.
TEST(RingTest, StepsOfAnAllToAllFit) {
  for (int32_t members = 2; members <= 5; ++members) {
    for (const int64_t count : {0, 1, 7}) {
      for (int32_t index = 0; index < members; ++index) {
        std::vector<bool> sent(static_cast<size_t>(members)), received(static_cast<size_t>(members));
        for (int32_t step = 1; step < members; ++step) {
          SCOPED_TRACE(testing::Message() << members << " members, index " << index << ", step " << step);
          const int32_t to = (index + step) % members;
          const StreamPlan plan = PlanAllToAllStep(members, index, step, count, 2);
          const StreamPlan other = PlanAllToAllStep(members, to, step, count, 2);
          ASSERT_EQ(plan.outgoing.size(), count == 0 ? 0u : 1u);
          if (count == 0) continue;
          EXPECT_EQ(plan.outgoing[0], (StreamPart{to * count * 2, count * 2, false}));
          EXPECT_EQ(other.incoming[0], (StreamPart{index * count * 2, count * 2, false}));
          EXPECT_EQ(plan.free_bytes, count * 2);  // nothing that is sent must be received before
          sent[static_cast<size_t>(to)] = true;
          received[static_cast<size_t>(plan.incoming[0].offset / (count * 2))] = true;
        }
        for (int32_t other = 0; other < members && count > 0; ++other) {
          EXPECT_EQ(sent[static_cast<size_t>(other)], other != index);
          EXPECT_EQ(received[static_cast<size_t>(other)], other != index);
        }
      }
    }
  }
}

TEST(RingTest, AUsedPlanLeavesNothingBehind) {
  StreamPlan used = PlanRingAllReduce(5, 1, 100, 4);
  used = PlanReceive(3, 2, std::move(used));
  const StreamPlan fresh = PlanReceive(3, 2);
  EXPECT_EQ(used.outgoing, fresh.outgoing);
  EXPECT_EQ(used.incoming, fresh.incoming);
  EXPECT_EQ(used.free_bytes, fresh.free_bytes);
}

TEST(RingTest, AllReduceSendsTheFewestBytes) {
  // Each member sends 2(n-1)/n of the buffer, where n is the number of members.
  for (int32_t members = 1; members <= 6; ++members) {
    for (int32_t index = 0; index < members; ++index) {
      for (const int64_t element_bytes : {2, 4}) {
        const size_t bytes = BytesInOrder(PlanRingAllReduce(members, index, 60, element_bytes).outgoing).size();
        EXPECT_EQ(bytes, 2 * (members - 1) * 60 * element_bytes / members);
      }
    }
  }
}

// Runs the streams of all members on integers, step by step. Each element moves as soon as its plan allows it.
std::vector<std::vector<int64_t>> RunInLockStep(PlanFunction plan_of, std::vector<std::vector<int64_t>> data, int64_t count) {
  const int32_t members = static_cast<int32_t>(data.size());
  std::vector<StreamPlan> plans;
  for (int32_t i = 0; i < members; ++i) plans.push_back(plan_of(members, i, count, 4, {}));
  std::vector<StreamCursor> out, in;
  for (int32_t i = 0; i < members; ++i) {
    out.emplace_back(&plans[i].outgoing);
    in.emplace_back(&plans[i].incoming);
  }
  bool moved = true;
  while (moved) {
    moved = false;
    for (int32_t i = 0; i < members; ++i) {
      if (out[i].finished()) continue;
      if (out[i].total_done() >= plans[i].free_bytes + in[i].total_done()) continue;
      const int32_t next = (i + 1) % members;
      const int64_t value = data[i][out[i].offset() / 4];
      int64_t& target = data[next][in[next].offset() / 4];
      target = in[next].part().reduce ? target + value : value;
      out[i].Advance(4);
      in[next].Advance(4);
      moved = true;
    }
  }
  for (int32_t i = 0; i < members; ++i) EXPECT_TRUE(out[i].finished() && in[i].finished());
  return data;
}

TEST(RingTest, AllReduceSums) {
  for (int32_t members = 1; members <= 6; ++members) {
    for (int64_t count = 0; count <= 20; ++count) {
      std::vector<std::vector<int64_t>> data(members, std::vector<int64_t>(count));
      for (int32_t r = 0; r < members; ++r) {
        for (int64_t i = 0; i < count; ++i) data[r][i] = (int64_t{1} << (8 * r)) * (i % 7 + 1);
      }
      std::vector<int64_t> sum(count, 0);
      for (const auto& row : data) {
        for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
      }
      for (const auto& row : RunInLockStep(&PlanRingAllReduce, data, count)) EXPECT_EQ(row, sum);
    }
  }
}

TEST(RingTest, ReduceScatterSumsEverySlotAtItsMember) {
  for (int32_t members = 1; members <= 6; ++members) {
    for (int64_t count = 0; count <= 5; ++count) {
      std::vector<std::vector<int64_t>> data(members, std::vector<int64_t>(members * count));
      std::vector<int64_t> sum(members * count, 0);
      for (int32_t r = 0; r < members; ++r) {
        for (int64_t i = 0; i < members * count; ++i) sum[i] += data[r][i] = (int64_t{1} << (8 * r)) * (i % 7 + 1);
      }
      const std::vector<std::vector<int64_t>> result = RunInLockStep(&PlanRingReduceScatter, data, count);
      for (int32_t r = 0; r < members; ++r) {
        for (int64_t i = r * count; i < (r + 1) * count; ++i) EXPECT_EQ(result[r][i], sum[i]) << members << " " << r;
      }
    }
  }
}

TEST(RingTest, AllGatherFillsEverySlot) {
  for (int32_t members = 1; members <= 6; ++members) {
    constexpr int64_t kCount = 5;
    std::vector<std::vector<int64_t>> data(members, std::vector<int64_t>(members * kCount, -1));
    std::vector<int64_t> expected;
    for (int32_t r = 0; r < members; ++r) {
      for (int64_t i = 0; i < kCount; ++i) {
        data[r][r * kCount + i] = r * 100 + i;
        expected.push_back(r * 100 + i);
      }
    }
    for (const auto& row : RunInLockStep(&PlanRingAllGather, data, kCount)) EXPECT_EQ(row, expected);
  }
}

}  // namespace
}  // namespace lynx::worker
