// Tests the shapes of pipelines, and the text form of schedules.
#include "planner/schedule/schedule.h"

#include <gtest/gtest.h>

#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

constexpr PipelineShape kLooping{.placement = StagePlacement::kLooping, .ranks = 4, .chunks = 3};
constexpr PipelineShape kV{.placement = StagePlacement::kV, .ranks = 4, .chunks = 2};
constexpr PipelineShape kBidirectional{.placement = StagePlacement::kBidirectional, .ranks = 4, .chunks = 2};

std::vector<int32_t> RanksOfStages(const PipelineShape& shape) {
  std::vector<int32_t> ranks;
  for (int32_t stage = 0; stage < shape.stages(); ++stage) ranks.push_back(shape.RankOf(stage));
  return ranks;
}

// Returns the stages through which a microbatch passes, from `stage` on.
std::vector<int32_t> WayFrom(const PipelineShape& shape, int32_t stage) {
  std::vector<int32_t> way;
  for (; stage != kNoStage; stage = shape.Next(stage)) way.push_back(stage);
  return way;
}

TEST(PipelineShape, PlacesStagesOnRanks) {
  EXPECT_EQ(RanksOfStages(kLooping), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(RanksOfStages(kV), (std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0}));
  EXPECT_EQ(RanksOfStages(kBidirectional), (std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0}));
}

TEST(PipelineShape, CutsTheModelIntoPieces) {
  EXPECT_EQ(kLooping.pieces(), 12);
  EXPECT_EQ(kV.pieces(), 8);
  EXPECT_EQ(kBidirectional.pieces(), 4);
  EXPECT_EQ(kBidirectional.pipes(), 2);
  EXPECT_EQ(kV.PieceOf(5), 5);
  EXPECT_EQ(kV.PipeOf(5), 0);
  EXPECT_EQ(kBidirectional.PieceOf(5), 1);
  EXPECT_EQ(kBidirectional.PipeOf(5), 1);
}

TEST(PipelineShape, LeadsFromStageToStage) {
  EXPECT_EQ(WayFrom(kLooping, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(WayFrom(kV, 0), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(WayFrom(kBidirectional, 0), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(WayFrom(kBidirectional, 4), (std::vector<int32_t>{4, 5, 6, 7}));
}

TEST(PipelineShape, IsConsistent) {
  for (const PipelineShape& shape : {kLooping, kV, kBidirectional}) {
    for (int32_t stage = 0; stage < shape.stages(); ++stage) {
      EXPECT_EQ(shape.StageOn(shape.RankOf(stage), shape.ChunkOf(stage)), stage);
      const int32_t next = shape.Next(stage);
      const int32_t previous = shape.Previous(stage);
      EXPECT_TRUE(next == kNoStage || shape.Previous(next) == stage) << stage;
      EXPECT_TRUE(previous == kNoStage || shape.Next(previous) == stage) << stage;
      EXPECT_EQ(previous == kNoStage, shape.PieceOf(stage) == 0);
      EXPECT_EQ(next == kNoStage, shape.PieceOf(stage) == shape.pieces() - 1);
    }
  }
}

TEST(ScheduleShape, KnowsWhatEachKindNeeds) {
  const auto check = [](ScheduleKind kind, PipelineShape shape, int32_t microbatches, bool splits) {
    return std::string(CheckScheduleShape(kind, shape, microbatches, splits).message());
  };
  const PipelineShape one{.ranks = 4, .chunks = 1};
  EXPECT_EQ(check(ScheduleKind::kGpipe, one, 8, false), "");
  EXPECT_EQ(check(ScheduleKind::kGpipe, kLooping, 8, false), "gpipe puts 1 chunks on each rank, not 3");
  EXPECT_EQ(check(ScheduleKind::kInterleaved, one, 8, false), "interleaved puts 2 to 256 chunks on each rank, not 1; use 1f1b");
  EXPECT_EQ(check(ScheduleKind::kInterleaved, kV, 8, false), "interleaved has placement looping, not v; a custom schedule may");
  EXPECT_EQ(check(ScheduleKind::kOneForwardOneBackward, one, 8, true),
            "1f1b does not split weight gradients from backward; a custom schedule may choose");
  EXPECT_EQ(check(ScheduleKind::kZeroBubble, one, 8, false),
            "zero-bubble splits weight gradients from backward; a custom schedule may choose");
  EXPECT_EQ(check(ScheduleKind::kChimera, {StagePlacement::kBidirectional, 3, 2}, 8, false),
            "chimera needs an even number of ranks, not 3: in an odd one the two pipes would meet in the same slots");
  EXPECT_EQ(check(ScheduleKind::kChimera, kBidirectional, 7, false),
            "chimera needs an even number of microbatches, half for each pipe, not 7");
  EXPECT_EQ(check(ScheduleKind::kCustom, {StagePlacement::kV, 4, 3}, 8, false),
            "placement v puts 2 chunks on each rank, not 3");
  EXPECT_EQ(check(ScheduleKind::kCustom, {StagePlacement::kBidirectional, 3, 2}, 7, true), "");
  EXPECT_EQ(check(ScheduleKind::kAuto, one, 8, false), "auto is no schedule but the choice of one");
}

TEST(ScheduleShape, HasBounds) {
  const auto check = [](PipelineShape shape, int32_t microbatches, bool splits) {
    return std::string(CheckScheduleShape(ScheduleKind::kCustom, shape, microbatches, splits).message());
  };
  EXPECT_EQ(check({.ranks = 0, .chunks = 1}, 8, false), "a pipeline has 1 to 4096 ranks, not 0");
  EXPECT_EQ(check({.ranks = 4097, .chunks = 1}, 8, false), "a pipeline has 1 to 4096 ranks, not 4097");
  EXPECT_EQ(check({.ranks = 4, .chunks = 0}, 8, false), "custom puts 1 to 256 chunks on each rank, not 0");
  EXPECT_EQ(check({.ranks = 4, .chunks = 257}, 8, false), "custom puts 1 to 256 chunks on each rank, not 257");
  EXPECT_EQ(check({.ranks = 4, .chunks = 1}, 0, false),
            "a schedule of 4 stages has 1 to 2097152 microbatches (16777216 slots), not 0");
  EXPECT_EQ(check({.ranks = 4, .chunks = 1}, 2097152, false), "");
  EXPECT_EQ(check({.ranks = 4, .chunks = 1}, 2097153, false),
            "a schedule of 4 stages has 1 to 2097152 microbatches (16777216 slots), not 2097153");
  EXPECT_EQ(check({.ranks = 4096, .chunks = 256}, 6, true),
            "a schedule of 1048576 stages has 1 to 5 microbatches (16777216 slots), not 6");
}

constexpr char kSmall[] =
    "1f1b ranks=2 chunks=1 microbatches=3\n"
    "0F0 0F1 0B0 0F2 0B1 0B2\n"
    "1F0 1B0 1F1 1B1 1F2 1B2\n";

TEST(ScheduleText, PrintsAndParses) {
  const Schedule schedule = Generated(ScheduleKind::kOneForwardOneBackward, 2, 1, 3);
  EXPECT_EQ(ScheduleText(schedule), kSmall);
  EXPECT_EQ(Read(kSmall), schedule);
}

TEST(ScheduleText, MaySkipLinesAndComment) {
  const Schedule schedule = Read(
      "# by hand\n\n"
      "1f1b microbatches=3   ranks=2 # two ranks\r\n"
      "\t0F0 0F1 0B0 0F2 0B1 0B2\n"
      "# the second\n"
      "1F0 1B0 1F1   1B1 1F2 1B2  # last");
  EXPECT_EQ(ScheduleText(schedule), kSmall);
}

TEST(ScheduleText, SaysPlacementAndWeightOfCustomSchedules) {
  const std::string text =
      "custom ranks=1 chunks=2 microbatches=1 placement=v weight=split\n"
      "0F0 1F0 1B0 0B0 0W0 1W0\n";
  const Schedule schedule = Read(text);
  EXPECT_EQ(schedule.kind, ScheduleKind::kCustom);
  EXPECT_EQ(schedule.shape, (PipelineShape{StagePlacement::kV, 1, 2}));
  EXPECT_TRUE(schedule.splits_weight);
  EXPECT_EQ(ScheduleText(schedule), text);
}

TEST(ScheduleText, KnowsWhatIsNotSaid) {
  EXPECT_EQ(Read("custom ranks=1 microbatches=1\n0F0 0B0").shape, (PipelineShape{StagePlacement::kLooping, 1, 1}));
  EXPECT_EQ(Read("custom ranks=1 microbatches=1 placement=bidirectional\n0F0").shape,
            (PipelineShape{StagePlacement::kBidirectional, 1, 2}));
  EXPECT_EQ(Read("chimera ranks=2 microbatches=2\n0F0\n1F0").shape, (PipelineShape{StagePlacement::kBidirectional, 2, 2}));
  EXPECT_TRUE(Read("zero-bubble ranks=1 microbatches=1\n0F0").splits_weight);
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (schedule.ok()) return "";
  EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(schedule.status().message());
}

TEST(ScheduleText, NamesLineAndWordOfABadSlot) {
  const std::string head = "1f1b ranks=2 microbatches=1\n0F0 0B0\n";
  EXPECT_EQ(ErrorOf(head + "1F0 B0"),
            "schedule line 3: word 2 \"B0\": expected a stage number at character 1 of a "
            "slot (as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1X0"),
            "schedule line 3: word 2 \"1X0\": expected F, B or W at character 2 of a slot "
            "(as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1"),
            "schedule line 3: word 2 \"1\": expected F, B or W at character 2 of a slot (as "
            "0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1B"),
            "schedule line 3: word 2 \"1B\": expected a microbatch number at character 3 of "
            "a slot (as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1B00"),
            "schedule line 3: word 2 \"1B00\": expected a microbatch number at character "
            "3 of a slot (as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1B0:3"),
            "schedule line 3: word 2 \"1B0:3\": expected the end at character 4 of a "
            "slot (as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 1B1234567890"),
            "schedule line 3: word 2 \"1B1234567890\": expected the end at "
            "character 12 of a slot (as 0F3)");
  EXPECT_EQ(ErrorOf(head + "1F0 -1B0"),
            "schedule line 3: word 2 \"-1B0\": expected a stage number at character 1 of "
            "a slot (as 0F3)");
}

TEST(ScheduleText, NamesLineAndWordOfABadFirstLine) {
  const auto error = [](const std::string& line) { return ErrorOf("\n" + line + "\n0F0 0B0"); };
  EXPECT_EQ(error("2f2b ranks=1 microbatches=1"),
            "schedule line 2: word 1 \"2f2b\": expected a schedule's kind: gpipe, 1f1b, interleaved, zero-bubble, "
            "zero-bubble-v, chimera, custom");
  EXPECT_EQ(error("auto ranks=1 microbatches=1"),
            "schedule line 2: word 1 \"auto\": expected a schedule's kind: gpipe, 1f1b, interleaved, zero-bubble, "
            "zero-bubble-v, chimera, custom");
  EXPECT_EQ(error("1f1b ranks=0 microbatches=1"),
            "schedule line 2: word 2 \"ranks=0\": ranks must be a number from 1 to 999999999");
  EXPECT_EQ(error("1f1b ranks=1x microbatches=1"),
            "schedule line 2: word 2 \"ranks=1x\": ranks must be a number from 1 to 999999999");
  EXPECT_EQ(error("1f1b ranks microbatches=1"),
            "schedule line 2: word 2 \"ranks\": ranks must be a number from 1 to 999999999");
  EXPECT_EQ(error("1f1b ranks=1 ranks=1"), "schedule line 2: word 3 \"ranks=1\": ranks is said twice");
  EXPECT_EQ(error("1f1b stages=1"),
            "schedule line 2: word 2 \"stages=1\": expected ranks=, chunks=, microbatches=, placement= or weight=");
  EXPECT_EQ(error("custom placement=w"),
            "schedule line 2: word 2 \"placement=w\": placement must be looping, v or bidirectional");
  EXPECT_EQ(error("custom placement=v placement=v"), "schedule line 2: word 3 \"placement=v\": placement is said twice");
  EXPECT_EQ(error("custom weight=w"), "schedule line 2: word 2 \"weight=w\": weight must be fused or split");
  EXPECT_EQ(error("custom weight=split weight=split"), "schedule line 2: word 3 \"weight=split\": weight is said twice");
  EXPECT_EQ(error("1f1b microbatches=1"), "schedule line 2: ranks= is missing");
  EXPECT_EQ(error("1f1b ranks=1"), "schedule line 2: microbatches= is missing");
  EXPECT_EQ(error("interleaved ranks=1 microbatches=1"), "schedule line 2: chunks= is missing: interleaved may have 2 or more");
  EXPECT_EQ(error("1f1b ranks=1 chunks=2 microbatches=1"), "schedule line 2: 1f1b puts 1 chunks on each rank, not 2");
  EXPECT_EQ(error("1f1b ranks=999999999 microbatches=999999999"),
            "schedule line 2: a pipeline has 1 to 4096 ranks, not 999999999");
}

TEST(ScheduleText, WantsOneLineARank) {
  EXPECT_EQ(ErrorOf(""), "the schedule is empty: its first line says the kind, as \"1f1b ranks=2 microbatches=4\"");
  EXPECT_EQ(ErrorOf("# nothing\n"), "the schedule is empty: its first line says the kind, as \"1f1b ranks=2 microbatches=4\"");
  EXPECT_EQ(ErrorOf("1f1b ranks=2 microbatches=1\n0F0 0B0\n"), "the schedule has 1 lines of slots for 2 ranks");
  EXPECT_EQ(ErrorOf("1f1b ranks=1 microbatches=1\n0F0 0B0\n1F0 1B0\n"),
            "schedule line 3: a line too many: the schedule has 1 ranks, one a line");
}

// Replaces or removes one word of a schedule's text, or adds a word after it. The result is then read or refused. If it is
// read, the schedule is printed, and the printed text must give the same schedule again.
TEST(ScheduleText, ReadsOrRefusesAnyText) {
  const std::vector<std::string> words = {
      "1f1b",   "custom", "ranks=2", "microbatches=2", "chunks=2", "placement=v", "0F0", "1B1",  "3W0", "\n", "#",
      "ranks=", "9",      "F",       "weight=",        "=",        "-1F0",        "0F",  "\xff", "\t"};
  int read = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    std::mt19937_64 rng(seed);
    std::vector<std::string> text_words = {
        "custom ranks=2 microbatches=2 \n", "0F0 ", "0F1 ", "0B0 ", "0B1 ", "\n", "1F0 ", "1B0 ", "1F1 ", "1B1 "};
    const size_t at = rng() % text_words.size();
    switch (rng() % 3) {
      case 0: text_words[at] = words[rng() % words.size()] + " "; break;
      case 1: text_words[at].clear(); break;
      case 2: text_words[at] += words[rng() % words.size()] + " "; break;
    }
    std::string text;
    for (const std::string& word : text_words) text += word;
    const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
    ++(schedule.ok() ? read : refused);
    if (!schedule.ok()) continue;
    EXPECT_EQ(Read(ScheduleText(*schedule)), *schedule) << "seed " << seed << ": " << text;
    (void)ValidateSchedule(*schedule);
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace lynx
