#include "planner/lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/lower/lower_recompute.h"
#include "tests/planner/lower/golden_programs.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using enum Placement;

TEST(ScheduleTest, InFlight) {
  EXPECT_EQ(InFlight(0, 4, 8), 4);
  EXPECT_EQ(InFlight(3, 4, 8), 1);
  EXPECT_EQ(InFlight(0, 4, 2), 2);
}

const ParallelLayout kTp2Pp2{.tp = 2, .pp = 2};

TEST(LowerGoldenTest, StoreAll) {
  ExpectGoldenPrograms("programs/program_none.txt", NamedPipeline(RecomputeMode::kNone, 2, kTp2Pp2, 3));
}
TEST(LowerGoldenTest, Full) {
  ExpectGoldenPrograms("programs/program_full.txt", NamedPipeline(RecomputeMode::kFull, 2, kTp2Pp2, 3));
}
TEST(LowerGoldenTest, FullKeepingCollectives) {
  ExpectGoldenPrograms("programs/program_full_keep_collectives.txt",
                       NamedPipeline(RecomputeMode::kFullKeepCollectives, 2, kTp2Pp2, 3));
}
TEST(LowerGoldenTest, Selective) {
  ExpectGoldenPrograms("programs/program_selective.txt", NamedPipeline(RecomputeMode::kSelective, 2, kTp2Pp2, 3));
}
TEST(LowerGoldenTest, Windows) {
  // The policy uses windows of every kind. ln1 and qkv are recomputed in the forward windows, probs in the stall, ln2 and fc1
  // in the windows of the layer above, and context in a window of the layer itself.
  const LayerPolicy layer = {kForward1, kForward2, kStall, kOwn1, kStore, kAbove1, kAbove2, kCritical};
  const StagePolicy stage{.layers = {layer, layer}};
  ExpectGoldenPrograms("programs/program_windows.txt", Lowered(ContextsOf(SmallModel(4), kTp2Pp2, 3), {{stage}, {stage}}));
}
TEST(LowerGoldenTest, DataParallelWithoutTensorParallel) {
  ExpectGoldenPrograms("programs/program_pp2_dp2.txt",
                       NamedPipeline(RecomputeMode::kSelective, 3, {.tp = 1, .pp = 2, .dp = 2}, 2));
}
// Each of these golden files has one small case of a schedule. The case of 1F1B is in program_none.txt.
TEST(LowerGoldenTest, Gpipe) {
  ExpectGoldenPrograms("programs/program_gpipe.txt",
                       NamedPipeline(RecomputeMode::kNone, 2, {.pp = 2, .schedule = ScheduleKind::kGpipe}, 2));
}
TEST(LowerGoldenTest, Interleaved) {
  const ParallelLayout layout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  ExpectGoldenPrograms("programs/program_interleaved.txt", NamedPipeline(RecomputeMode::kSelective, 4, layout, 2));
}
TEST(LowerGoldenTest, ZeroBubble) {
  const ParallelLayout layout{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubble};
  ExpectGoldenPrograms("programs/program_zero_bubble.txt", NamedPipeline(RecomputeMode::kNone, 2, layout, 2));
}
TEST(LowerGoldenTest, ZeroBubbleV) {
  const ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kZeroBubbleV};
  ExpectGoldenPrograms("programs/program_zero_bubble_v.txt", NamedPipeline(RecomputeMode::kNone, 4, layout, 2));
}
TEST(LowerGoldenTest, Chimera) {
  const ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kChimera};
  ExpectGoldenPrograms("programs/program_chimera.txt", NamedPipeline(RecomputeMode::kNone, 2, layout, 2));
}
TEST(LowerGoldenTest, SingleRank) {
  ExpectGoldenPrograms("programs/program_single_rank.txt", NamedPipeline(RecomputeMode::kFull, 1, {}, 1));
}

// Returns the ops that run at each point of recomputation as text, without points that have no ops: "f1: ln1 qkv; before mlp:
// gelu".
std::string ResolvedText(const LayerPolicy& policy, const RecomputeSituation& situation) {
  constexpr std::array<const char*, kRecomputePointCount> kNames = {
      "f1", "f2", "f3", "f4", "stall", "b1", "b2", "b3", "b4", "before mlp", "o1", "before attn", "o2", "before end"};
  const RecomputeOps ops = ResolveRecomputation(LayerGraph::Of({}), policy, situation);
  std::string text;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i] == 0) continue;
    text += (text.empty() ? "" : "; ") + std::string(kNames[i]) + ":";
    for (const OpInfo& info : LayerGraph::Of({}).ops()) {
      if (Contains(ops[i], info.op)) text += " " + std::string(EnumName(info.op));
    }
  }
  return text;
}

constexpr RecomputeSituation kSteady{.forward_windows = kAllWindows,
                                     .above_windows = kAllWindows,
                                     .own_windows = kAllWindows,
                                     .paired_forward = true,
                                     .stall = true,
                                     .layer_above = true};

TEST(ResolveRecomputationTest, CriticalStandsBeforeTheSegmentThatReadsTheChain) {
  // If x1 is stored, the tensors of attention are recomputed only before the backward pass of attention.
  EXPECT_EQ(ResolvedText({kCritical, kCritical, kCritical, kCritical, kStore, kCritical, kCritical, kCritical}, kSteady),
            "before mlp: ln2 fc1 gelu; before attn: ln1 qkv probs context");
  // If x1 is recomputed for ln2, everything that x1 is made from is recomputed first.
  EXPECT_EQ(ResolvedText({kCritical, kCritical, kCritical, kCritical, kCritical, kCritical, kStore, kStore}, kSteady),
            "before mlp: ln1 qkv probs context proj add1 ln2");
  // x1 is recomputed only for the backward pass of attention.
  EXPECT_EQ(ResolvedText({kStore, kStore, kStore, kStore, kCritical, kStore, kStore, kStore}, kSteady),
            "before attn: proj add1");
}

TEST(ResolveRecomputationTest, WindowsHoldWhatIsPlacedThere) {
  const LayerPolicy policy = {kForward1, kForward2, kStall, kOwn1, kStore, kAbove1, kAbove2, kCritical};
  EXPECT_EQ(ResolvedText(policy, kSteady), "f1: ln1; f2: qkv; stall: probs; b1: ln2; b2: fc1; before mlp: gelu; o1: context");
  RecomputeSituation situation = kSteady;
  situation.paired_forward = false;
  EXPECT_EQ(ResolvedText(policy, situation), "stall: ln1 qkv probs; b1: ln2; b2: fc1; before mlp: gelu; o1: context");
  situation = kSteady;
  situation.layer_above = false;
  EXPECT_EQ(ResolvedText(policy, situation), "f1: ln1; f2: qkv; stall: probs ln2 fc1; before mlp: gelu; o1: context");
  // The last stage has no stall, and just before its backward pass there is no forward pass of another microbatch.
  situation = {.forward_windows = kAllWindows, .above_windows = kAllWindows, .own_windows = kAllWindows, .layer_above = true};
  EXPECT_EQ(ResolvedText(policy, situation), "b1: ln2; b2: fc1; before mlp: gelu; before attn: ln1 qkv probs context");
  situation = {.paired_forward = true, .stall = true, .layer_above = true};
  EXPECT_EQ(ResolvedText(policy, situation), "before mlp: ln2 fc1 gelu; before attn: ln1 qkv probs context");
}

TEST(ResolveRecomputationTest, OwnWindowIsTooLateForWhatItsSegmentReads) {
  EXPECT_EQ(ResolvedText({kStore, kStore, kOwn1, kStore, kStore, kStore, kStore, kOwn1}, kSteady),
            "before mlp: gelu; o1: probs");
}

TEST(ResolveRecomputationTest, CriticalComesBeforeTheOwnWindowThatReadsIt) {
  EXPECT_EQ(ResolvedText({kCritical, kCritical, kOwn1, kStore, kStore, kStore, kStore, kStore}, kSteady),
            "before mlp: ln1 qkv; o1: probs");
  RecomputeSituation situation = kSteady;
  situation.forward_windows = situation.above_windows = situation.own_windows = 0;
  EXPECT_EQ(ResolvedText({kCritical, kCritical, kOwn1, kStore, kStore, kStore, kStore, kStore}, situation),
            "before attn: ln1 qkv probs");
}

TEST(ResolveRecomputationTest, NothingRunsBeforeItsInputs) {
  EXPECT_EQ(ResolvedText({kAbove2, kForward1, kStore, kStore, kStore, kStore, kStore, kStore}, kSteady), "b2: ln1 qkv");
}

TEST(ResolveRecomputationTest, RepeatedCollectivesStayOutOfWindows) {
  EXPECT_EQ(ResolvedText({kStore, kStore, kStore, kStore, kForward1, kStore, kStore, kStore}, kSteady),
            "before attn: proj add1");
  EXPECT_EQ(ResolvedText({kStore, kStore, kStore, kStore, kStall, kStore, kStore, kStore}, kSteady), "stall: proj add1");
  // The input of proj is made only in a window, so the collective runs only after this window.
  EXPECT_EQ(ResolvedText({kStore, kStore, kStore, kAbove1, kStall, kAbove2, kStore, kStore}, kSteady),
            "b1: context; before mlp: proj add1 ln2");
}

TEST(LowerTest, HeadsCollectiveHidesTheTopLayersFirstRecomputation) {
  const Pipeline full = NamedPipeline(RecomputeMode::kFull, 2, {.tp = 2}, 1);
  EXPECT_THAT(ProgramText(full.programs[0]),
              HasSubstr("0BAR+0:h.head\n0W0:h.head\n0R0:1.attn(ln1,qkv,probs,context,proj)\n0BAR-0:h.head\n0B0:h.end\n"
                        "0RAR+0:1.attn\n0RAR-0:1.attn\n0R0:1.mlp(add1,ln2,fc1,gelu)\n0B0:1.mlp\n"));
  const Pipeline keep = NamedPipeline(RecomputeMode::kFullKeepCollectives, 2, {.tp = 2}, 1);
  EXPECT_THAT(ProgramText(keep.programs[0]),
              HasSubstr("0W0:h.head\n0R0:1.mlp(ln2,fc1,gelu)\n0BAR-0:h.head\n0B0:h.end\n0B0:1.mlp\n"));
  // Lower layers recompute just before their own backward passes.
  EXPECT_THAT(ProgramText(keep.programs[0]), HasSubstr("0B0:1.end\n0R0:0.mlp(ln2,fc1,gelu)\n0B0:0.mlp\n"));
}

TEST(LowerTest, OneCollectiveLessIsRepeatedWhenItsResultIsKept) {
  EXPECT_THAT(ProgramText(NamedPipeline(RecomputeMode::kFullKeepCollectives, 2, kTp2Pp2, 3).programs[0]),
              Not(HasSubstr("RAR")));
}

TEST(LowerDeathTest, APolicyForAnotherNumberOfLayersIsAProgrammingError) {
  const std::vector<StageContext> contexts = ContextsOf(SmallModel(2), {}, 1);
  EXPECT_DEATH(LowerStage(contexts[0], NamedPolicy(LayerGraph::Of({}), RecomputeMode::kNone, 3)), "LYNX_CHECK");
}

}  // namespace
}  // namespace lynx
