// Tests the validation of schedules, generated ones and those from text.
#include "planner/schedule/schedule_order.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ValidateSchedule(Read(text));
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ValidateSchedule, AcceptsWhatPeopleWrite) {
  // The backward passes run in the order in which they become ready: the last microbatch comes first.
  EXPECT_EQ(ErrorOf("gpipe ranks=2 microbatches=2\n0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0\n"), "");
  // Microbatches need not be in order.
  EXPECT_EQ(ErrorOf("custom ranks=2 microbatches=3\n0F2 0F0 0B2 0F1 0B0 0B1\n1F2 1B2 1F0 1B0 1F1 1B1\n"), "");
  // This looping pipeline runs both chunks of a microbatch before the next microbatch.
  EXPECT_EQ(ErrorOf("custom ranks=1 chunks=2 microbatches=2\n0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1\n"), "");
  // The next two pipelines have the shape of a V, first without and then with split weight gradients.
  EXPECT_EQ(ErrorOf("custom ranks=2 chunks=2 microbatches=1 placement=v\n0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n"), "");
  EXPECT_EQ(ErrorOf("custom ranks=2 chunks=2 microbatches=1 placement=v weight=split\n"
                    "0F0 3F0 3B0 3W0 0B0 0W0\n1F0 2F0 2B0 1B0 2W0 1W0\n"),
            "");
  // The two pipes of a bidirectional pipeline may divide the microbatches in any way, and the number of ranks may be odd. Here
  // microbatch 1 uses stages 0 to 2 (from rank 0 to rank 2). Microbatches 0 and 2 use stages 3 to 5 (from rank 2 to rank 0).
  EXPECT_EQ(ErrorOf("custom ranks=3 microbatches=3 placement=bidirectional\n"
                    "0F1 5F0 5B0 5F2 5B2 0B1\n4F0 1F1 4F2 4B0 1B1 4B2\n3F0 3F2 2F1 2B1 3B0 3B2\n"),
            "");
}

// Every schedule that docs/schedules.md shows must be valid. A schedule is a line "KIND ranks=..." and the lines after it in
// the same fenced block.
TEST(ValidateSchedule, AcceptsTheExamplesOfTheDocs) {
  std::ifstream page(std::string(LYNX_SOURCE_DIR) + "/docs/schedules.md");
  ASSERT_TRUE(page.good());
  std::string line, text;
  int examples = 0;
  while (std::getline(page, line)) {
    if (line.rfind("```", 0) == 0) {
      if (!text.empty()) {
        EXPECT_EQ(ErrorOf(text), "") << text;
        ++examples;
      }
      text.clear();
    } else if (!text.empty() || line.find(" ranks=") != std::string::npos) {
      text += line + "\n";
    }
  }
  EXPECT_EQ(examples, 3);
}

constexpr char kHead[] = "custom ranks=2 microbatches=2\n";

TEST(ValidateSchedule, NamesASlotThatDoesNotExist) {
  const std::string head = kHead;
  EXPECT_EQ(ErrorOf(head + "0F0 0B0 2F1\n1F0 1B0\n"), "rank 0, slot 3 (2F1): the stages are 0 to 1");
  EXPECT_EQ(ErrorOf(head + "0F0 0B0 0F2\n1F0 1B0\n"), "rank 0, slot 3 (0F2): the microbatches are 0 to 1");
  EXPECT_EQ(ErrorOf(head + "0F0 0B0 0W0\n1F0 1B0\n"),
            "rank 0, slot 3 (0W0): in this schedule B includes the weight gradient; one with W needs weight=split");
  Schedule schedule = Generated(ScheduleKind::kGpipe, 2, 1, 2);
  schedule.ranks[1][1].stage = -1;
  EXPECT_EQ(ValidateSchedule(schedule).message(), "rank 1, slot 2 (-1F1): the stages are 0 to 1");
  schedule.ranks[1][1] = {Pass::kForward, 1, -1};
  EXPECT_EQ(ValidateSchedule(schedule).message(), "rank 1, slot 2 (1F-1): the microbatches are 0 to 1");
}

TEST(ValidateSchedule, NamesASlotOnTheWrongRank) {
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 1F0\n1B0\n"), "rank 0, slot 2 (1F0): stage 1 is on rank 1");
  EXPECT_EQ(ErrorOf("custom ranks=2 microbatches=2 placement=v\n0F0 2F0\n1F0\n"), "rank 0, slot 2 (2F0): stage 2 is on rank 1");
}

TEST(ValidateSchedule, NamesASlotThatStandsTwice) {
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 0F1 0F0\n1F0\n"), "rank 0, slot 3 (0F0): stands here twice, first as slot 1");
}

TEST(ValidateSchedule, NamesASlotBeforeWhatItNeeds) {
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 0B1 0F1 0B0\n1F0\n"), "rank 0, slot 2 (0B1): no 0F1 stands before it");
  EXPECT_EQ(ErrorOf("custom ranks=1 microbatches=1 weight=split\n0F0 0W0 0B0\n"),
            "rank 0, slot 2 (0W0): no 0B0 stands before it");
}

TEST(ValidateSchedule, NamesAMicrobatchOnBothPipes) {
  EXPECT_EQ(ErrorOf("custom ranks=2 microbatches=2 placement=bidirectional\n0F0 3F0\n1F0\n"),
            "rank 0, slot 2 (3F0): microbatch 0 goes through the other pipe: stages 0 to 1");
}

TEST(ValidateSchedule, NamesWhatIsMissing) {
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 0B0 0F1 0B1\n1F0 1B0 1F1\n"), "rank 1: 1B1 is missing");
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 0B0\n1F0 1B0\n"), "microbatch 1 has no slot");
  EXPECT_EQ(ErrorOf("zero-bubble ranks=1 microbatches=1\n0F0 0B0\n"), "rank 0: 0W0 is missing");
  EXPECT_EQ(ErrorOf("custom ranks=2 microbatches=2 placement=bidirectional\n0F0 3F1 3B1 0B0\n1F0 2F1 1B0\n"),
            "rank 1: 2B1 is missing");
}

TEST(ValidateSchedule, NamesTheSlotsOfADeadlock) {
  // Rank 0 waits for the first gradient before it sends the second microbatch. Rank 1 needs both microbatches before it runs
  // its first backward pass.
  EXPECT_EQ(ErrorOf(std::string(kHead) + "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n"),
            "deadlock: rank 0 waits at slot 2 (0B0) for 1B0 of rank 1; rank 1 waits at slot 2 (1F1) for 0F1 of rank 0");
  // Rank 0 waits for itself: its stage 1 needs the result of its stage 0.
  EXPECT_EQ(ErrorOf("custom ranks=1 chunks=2 microbatches=1\n1F0 0F0 1B0 0B0\n"),
            "deadlock: rank 0 waits at slot 1 (1F0) for 0F0 of rank 0");
}

TEST(ValidateSchedule, NamesTheCircleNotThoseThatWaitForIt) {
  // Ranks 1 and 2 wait for each other; rank 0 waits for rank 1.
  EXPECT_EQ(ErrorOf("custom ranks=3 microbatches=2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n2F0 2F1 2B0 2B1\n"),
            "deadlock: rank 1 waits at slot 2 (1B0) for 2B0 of rank 2; rank 2 waits at slot 2 (2F1) for 1F1 of rank 1");
}

TEST(ValidateSchedule, KeepsAMessageShort) {
  // Twelve ranks wait in one circle. Each rank has the forward pass of its second chunk before that of its first chunk.
  constexpr int32_t kRanks = 12;
  Schedule schedule = Generated(ScheduleKind::kGpipe, kRanks, 1, 1);
  schedule.shape = {.placement = StagePlacement::kLooping, .ranks = kRanks, .chunks = 2};
  schedule.kind = ScheduleKind::kCustom;
  for (int32_t r = 0; r < kRanks; ++r) {
    schedule.ranks[r] = {
        {Pass::kForward, r + kRanks, 0}, {Pass::kForward, r, 0}, {Pass::kBackward, r + kRanks, 0}, {Pass::kBackward, r, 0}};
  }
  const std::string message(ValidateSchedule(schedule).message());
  EXPECT_EQ(std::count(message.begin(), message.end(), ';'), 8) << message;
  EXPECT_EQ(message.substr(message.size() - 9), "and so on") << message;
}

TEST(ValidateSchedule, WantsTheShapeThatTheKindHas) {
  Schedule schedule = Generated(ScheduleKind::kGpipe, 2, 1, 2);
  schedule.splits_weight = true;
  EXPECT_EQ(ValidateSchedule(schedule).message(),
            "gpipe does not split weight gradients from backward; a custom schedule may choose");
  schedule.splits_weight = false;
  schedule.ranks.pop_back();
  EXPECT_EQ(ValidateSchedule(schedule).message(), "the schedule has slots for 1 ranks; its pipeline has 2");
}

TEST(OrderSlots, PutsEverySlotAfterWhatItNeeds) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    const SlotOrder order = Ordered(schedule);
    const PipelineShape& shape = schedule.shape;
    std::vector<size_t> next(schedule.ranks.size(), 0);
    std::vector<Slot> done;
    for (const OrderedSlot& ordered : order.slots) {
      ASSERT_LT(next[ordered.rank], schedule.ranks[ordered.rank].size()) << "seed " << seed;
      const Slot& slot = schedule.ranks[ordered.rank][next[ordered.rank]++];
      EXPECT_EQ(ordered.pass_and_stage, static_cast<int32_t>(slot.pass) * shape.stages() + slot.stage);
      EXPECT_EQ(order.pipe_of_microbatch[slot.microbatch], shape.PipeOf(slot.stage));
      const int32_t needed = slot.pass == Pass::kForward    ? shape.Previous(slot.stage)
                             : slot.pass == Pass::kBackward ? shape.Next(slot.stage)
                                                            : kNoStage;
      if (needed == kNoStage) {
        EXPECT_EQ(ordered.needs, 0);
      } else {
        ASSERT_LE(ordered.needs, static_cast<int32_t>(done.size())) << "seed " << seed;
        ASSERT_GT(ordered.needs, 0) << "seed " << seed;
        EXPECT_EQ(done[ordered.needs - 1], (Slot{slot.pass, needed, slot.microbatch})) << "seed " << seed;
      }
      done.push_back(slot);
    }
    for (size_t rank = 0; rank < next.size(); ++rank) EXPECT_EQ(next[rank], schedule.ranks[rank].size());
  }
}

// Makes one random change to a correct schedule. The validation must accept the result exactly if the reference can still run
// it.
TEST(ValidateSchedule, AgreesWithTheReferenceOnChangedSchedules) {
  int valid = 0, invalid = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 rng(seed);
    Schedule schedule = RandomSchedule(rng);
    schedule.kind = ScheduleKind::kCustom;
    std::vector<Slot>& slots = schedule.ranks[rng() % schedule.ranks.size()];
    const size_t i = rng() % slots.size();
    switch (rng() % 6) {
      case 0: std::swap(slots[i], slots[(i + 1) % slots.size()]); break;
      case 1: std::swap(slots[i], slots[rng() % slots.size()]); break;
      case 2: slots.erase(slots.begin() + static_cast<int64_t>(i)); break;
      case 3: slots.push_back(slots[i]); break;
      case 4: slots[i].microbatch = static_cast<int32_t>(rng() % 24) - 1; break;
      case 5: slots[i].stage = static_cast<int32_t>(rng() % static_cast<uint64_t>(schedule.shape.stages() + 1)); break;
    }
    const auto reference = RunReference(schedule, EqualTimes(schedule.shape, 1, 1, 1));
    const absl::Status status = ValidateSchedule(schedule);
    ASSERT_EQ(status.ok(), reference.has_value()) << "seed " << seed << ": " << status << "\n" << ScheduleText(schedule);
    ++(status.ok() ? valid : invalid);
  }
  EXPECT_GT(valid, 300);
  EXPECT_GT(invalid, 300);
}

TEST(ScheduleProperty, GeneratedSchedulesValidateAndReadBack) {
  std::set<ScheduleKind> kinds;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    kinds.insert(schedule.kind);
    const absl::Status status = ValidateSchedule(schedule);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status << "\n" << ScheduleText(schedule);
    ASSERT_EQ(Read(ScheduleText(schedule)), schedule) << "seed " << seed;
    ASSERT_TRUE(RunReference(schedule, EqualTimes(schedule.shape, 1, 1, 1)).has_value()) << "seed " << seed;
  }
  EXPECT_EQ(kinds.size(), std::size(kAllKinds));
}

}  // namespace
}  // namespace lynx
