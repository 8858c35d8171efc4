#include "planner/program/memory_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Action Parsed(const std::string& text) {
  const absl::StatusOr<Action> action = ParseAction(text);
  EXPECT_TRUE(action.ok()) << action.status();
  return *action;
}

Program ParsedProgram(const std::string& text) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// Returns the context of stage 0 or 1 of a model of four layers with tp 2 and pp 2.
StageContext Stage(int32_t stage) { return ContextsOf(SmallModel(4), {.tp = 2, .pp = 2}, 3)[static_cast<size_t>(stage)]; }

// Returns the accesses of an action in order, each with its mode: "w x[0,0] r ln1[0,0] u grad[0]".
std::string AccessText(const std::string& action, const StageContext& context) {
  std::string text;
  for (const Access& access : AccessesOf(Parsed(action), context)) {
    constexpr char kModes[] = {'w', 'r', 'u'};
    absl::StrAppend(&text, text.empty() ? "" : " ", std::string(1, kModes[static_cast<int>(access.mode)]), " ",
                    BufferKeyText(access.key));
  }
  return text;
}

TEST(AccessesTest, ForwardOfATransformerLayer) {
  const StageContext c = Stage(0);
  EXPECT_EQ(AccessText("0F2:1.attn", c), "r x[1,2] w ln1[1,2] w qkv[1,2] w probs[1,2] w context[1,2] w x1[1,2] w workspace[]");
  EXPECT_EQ(AccessText("0AR+2:1.attn", c), "u x1[1,2]");
  EXPECT_EQ(AccessText("0AR-2:1.attn", c), "u x1[1,2]");
  EXPECT_EQ(AccessText("0RAR+2:1.attn", c), "u x1[1,2]");
  EXPECT_EQ(AccessText("0F2:0.mlp", c), "r x[0,2] u x1[0,2] w ln2[0,2] w fc1[0,2] w gelu[0,2] w x[1,2]");
  EXPECT_EQ(AccessText("0AR+2:0.mlp", c), "u x[1,2]");
  EXPECT_EQ(AccessText("0F2:0.end", c), "r x1[0,2] u x[1,2]");
}

TEST(AccessesTest, BackwardOfATransformerLayer) {
  const StageContext c = Stage(0);
  EXPECT_EQ(AccessText("0B2:1.mlp", c), "r grad[2] w grad_fc2[1,2] w grad_fc1[1,2] r fc1[1,2] w grad_ln2[1,2]");
  EXPECT_EQ(AccessText("0BAR+2:1.mlp", c), "u grad_ln2[1,2]");
  EXPECT_EQ(AccessText("0W2:1.mlp", c), "r grad_fc2[1,2] r gelu[1,2] r ln2[1,2] r grad_fc1[1,2]");
  EXPECT_EQ(AccessText("0B2:1.attn", c),
            "r x1[1,2] r grad_ln2[1,2] u grad[2] w grad_proj[1,2] w grad_context[1,2] r probs[1,2] r qkv[1,2] "
            "w grad_qkv[1,2] w grad_ln1[1,2] w workspace[]");
  EXPECT_EQ(AccessText("0BAR-2:1.attn", c), "u grad_ln1[1,2]");
  EXPECT_EQ(AccessText("0W2:1.attn", c), "r grad_proj[1,2] r context[1,2] r ln1[1,2] r grad_qkv[1,2]");
  EXPECT_EQ(AccessText("0B2:1.end", c), "r x[1,2] r grad_ln1[1,2] u grad[2]");
}

TEST(AccessesTest, EmbeddingAndHead) {
  const StageContext first = Stage(0), last = Stage(1);
  EXPECT_EQ(AccessText("0F0:e.embed", first), "w x[0,0]");
  EXPECT_EQ(AccessText("0AR+0:e.embed", first), "u x[0,0]");
  EXPECT_EQ(AccessText("0F0:e.end", first), "u x[0,0]");
  EXPECT_EQ(AccessText("0B0:e.embed", first), "r grad[0]");
  EXPECT_EQ(AccessText("1F0:h.head", last), "r x[h,0] w lnf[h,0] w logits[h,0] w loss_stats[h,0]");
  EXPECT_EQ(AccessText("1AG+0:h.head", last), "u loss_stats[h,0]");
  EXPECT_EQ(AccessText("1F0:h.end", last), "r logits[h,0] r loss_stats[h,0]");
  EXPECT_EQ(AccessText("1B0:h.head", last), "r loss_stats[h,0] u logits[h,0] w grad_lnf[h,0]");
  EXPECT_EQ(AccessText("1BAR+0:h.head", last), "u grad_lnf[h,0]");
  EXPECT_EQ(AccessText("1W0:h.head", last), "r lnf[h,0] r logits[h,0]");
  EXPECT_EQ(AccessText("1B0:h.end", last), "r x[h,0] r grad_lnf[h,0] w grad[0]");
}

TEST(AccessesTest, StageOutputsAndTransfers) {
  const StageContext first = Stage(0), last = Stage(1);
  // The stage has no head: its output is the x of the next stage's first layer.
  EXPECT_EQ(AccessText("0F0:1.end", first), "r x1[1,0] u x[2,0]");
  EXPECT_EQ(AccessText("1F0:3.end", last), "r x1[3,0] u x[h,0]");  // the stage has the head, which reads this x
  EXPECT_EQ(AccessText("0SF+0", first), "r x[2,0]");
  EXPECT_EQ(AccessText("0SF-0", first), "r x[2,0]");
  EXPECT_EQ(AccessText("1RF+0", last), "w x[2,0]");
  EXPECT_EQ(AccessText("1RF-0", last), "u x[2,0]");
  EXPECT_EQ(AccessText("1SB+0", last), "r grad[0]");
  EXPECT_EQ(AccessText("0RB+0", first), "w grad[0]");
  EXPECT_EQ(AccessText("0RB-0", first), "u grad[0]");
  for (const char* none : {"0DP+:1", "0DP-:e", "0NORM+", "0NORM-", "0OPT"}) EXPECT_EQ(AccessText(none, first), "");
}

TEST(AccessesTest, RecomputationTouchesTheListedOpsOnly) {
  const StageContext c = Stage(0);
  EXPECT_EQ(AccessText("0R2:1.attn(ln1,qkv)", c), "r x[1,2] w ln1[1,2] w qkv[1,2]");
  EXPECT_EQ(AccessText("0R2:1.attn(probs)", c), "r qkv[1,2] w probs[1,2]");
  EXPECT_EQ(AccessText("0R2:1.attn(context,proj)", c), "r probs[1,2] r qkv[1,2] w context[1,2] w x1[1,2] w workspace[]");
  EXPECT_EQ(AccessText("0R2:1.mlp(add1,ln2)", c), "r x[1,2] u x1[1,2] w ln2[1,2]");
}

TEST(AccessesTest, WorkspaceIsTheLargestNeedOfTheOps) {
  StageContext c = Stage(0);
  const auto workspace = [&](const char* action) {
    for (const Access& access : AccessesOf(Parsed(action), c)) {
      if (access.key.tensor == Tensor::kWorkspace) return access.bytes;
    }
    return Bytes(0);
  };
  EXPECT_EQ(workspace("0F0:1.attn"), Bytes(16 * 16 * 4));
  EXPECT_EQ(workspace("0B0:1.attn"), Bytes(2 * 16 * 16 * 4));
  c.model.dropout = 0;
  EXPECT_EQ(workspace("0F0:1.attn"), Bytes(0));
}

TEST(FoldLivenessTest, AnInstanceLivesFromItsWriteToItsLastUse) {
  const Program program = ParsedProgram("0F0:e.embed 0F0:e.end 0F0:0.attn 0R0:0.attn(ln1) 0W0:0.attn");
  StageContext c = Stage(0);
  // The weight pass also reads tensors that this fragment has not written. The error names the first such tensor and the
  // action.
  const absl::StatusOr<MemoryPlan> broken = FoldLiveness(program, c);
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(broken.status().message()),
            "action 4 (0W0:0.attn) reads grad_proj[0,0], which no action before it writes");

  const absl::StatusOr<MemoryPlan> plan = FoldLiveness(ParsedProgram("0F0:e.embed 0F0:e.end 0F0:0.attn 0R0:0.attn(ln1) "
                                                                     "0R0:0.attn(qkv)"),
                                                       c);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> lives;
  for (const BufferInstance& b : plan->buffers) {
    lives.push_back(absl::StrCat(BufferKeyText(b.key), " ", b.first, "-", b.last));
  }
  EXPECT_THAT(lives, ElementsAre("x[0,0] 0-3", "ln1[0,0] 2-2", "qkv[0,0] 2-2", "probs[0,0] 2-2", "context[0,0] 2-2",
                                 "x1[0,0] 2-2", "workspace[] 2-2", "ln1[0,0] 3-4", "qkv[0,0] 4-4"));
  EXPECT_EQ(plan->peak_action, 2);
  EXPECT_EQ(plan->arena, Bytes(0));
}

TEST(FoldLivenessTest, PeakIsTheLargestSumOfPaddedBytes) {
  // With a sequence length of 15, the bytes of qkv and of probs are not multiples of the alignment.
  StageContext c = Stage(0);
  c.model.seq = 15;
  c.model.heads = 2;  // one head of width 16 per rank
  const absl::StatusOr<MemoryPlan> plan = FoldLiveness(ParsedProgram("0F0:e.embed 0R0:0.attn(ln1,qkv,probs)"), c);
  ASSERT_TRUE(plan.ok());
  const int64_t x = 2 * 15 * 32 * 4, qkv = 2 * 15 * 48 * 4, probs = 2 * 15 * 15 * 4;
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  EXPECT_EQ(plan->live_peak, Bytes(2 * padded(x) + padded(qkv) + padded(probs)));
  EXPECT_NE(padded(probs), probs);
  for (const BufferInstance& b : plan->buffers) EXPECT_EQ(b.bytes.value % 256, 0);
}

// Returns the keys of the buffers that are alive both before and at the action whose text is `action`.
std::vector<std::string> LiveAcross(const std::string& action, const Pipeline& pipeline, size_t stage) {
  const Program& program = pipeline.programs[stage];
  const auto at = static_cast<int32_t>(std::find(program.begin(), program.end(), Parsed(action)) - program.begin());
  EXPECT_LT(at, static_cast<int32_t>(program.size()));
  const absl::StatusOr<MemoryPlan> plan = FoldLiveness(program, pipeline.contexts[stage]);
  EXPECT_TRUE(plan.ok());
  std::vector<std::string> keys;
  for (const BufferInstance& b : plan->buffers) {
    if (b.first < at && b.last >= at) keys.push_back(BufferKeyText(b.key));
  }
  return keys;
}

TEST(StoredBytesTest, FullRecomputationKeepsLayerInputs) {
  const Pipeline full = NamedPipeline(RecomputeMode::kFull, 4, {.tp = 2, .pp = 2}, 3);
  // Two microbatches are in flight on a stage of two layers. The output of the second one is being sent, and the gradient of
  // the first one is being received.
  EXPECT_THAT(LiveAcross("0R0:1.attn(ln1,qkv,probs,context,proj)", full, 0),
              UnorderedElementsAre("x[0,0]", "x[1,0]", "x[0,1]", "x[1,1]", "x[2,1]", "grad[0]"));
  // At the end of its forward pass, the last stage holds one microbatch and what the head needs.
  EXPECT_THAT(LiveAcross("1B0:h.head", full, 1),
              UnorderedElementsAre("x[2,0]", "x[3,0]", "x[h,0]", "lnf[h,0]", "logits[h,0]", "loss_stats[h,0]"));
}

TEST(StoredBytesTest, KeepingCollectivesKeepsX1) {
  const Pipeline keep = NamedPipeline(RecomputeMode::kFullKeepCollectives, 2, {.tp = 2, .pp = 2}, 2);
  EXPECT_THAT(LiveAcross("0R0:0.mlp(ln2,fc1,gelu)", keep, 0),
              UnorderedElementsAre("x[0,0]", "x1[0,0]", "x[0,1]", "x1[0,1]", "x[1,1]", "grad[0]"));
}

// In fp32, one layer stores sbh(4 + 12/t) + a s^2 b / t elements per microbatch. x, ln1, x1 and ln2 are not sharded and have 4
// sbh elements. qkv (3), context (1), fc1 and gelu (8) are sharded over t and have 12 sbh / t. The last term is the attention
// probabilities.
TEST(StoredBytesTest, StoreAllKeepsWhatTheFormulaSays) {
  const int32_t layers = 3;
  for (const int32_t tp : {1, 2, 4}) {
    const Pipeline none = NamedPipeline(RecomputeMode::kNone, layers, {.tp = tp}, 2);
    const absl::StatusOr<MemoryPlan> plan = FoldLiveness(none.programs[0], none.contexts[0]);
    ASSERT_TRUE(plan.ok());
    const Program& program = none.programs[0];
    const auto at = static_cast<int32_t>(std::find(program.begin(), program.end(), Parsed("0F0:h.head")) - program.begin());
    int64_t live = 0;
    for (const BufferInstance& b : plan->buffers) {
      if (b.first < at && b.last >= at) live += b.bytes.value;
    }
    const int64_t sbh = 16 * 2 * 32, a_s2_b = 4 * 16 * 16 * 2;
    EXPECT_EQ(live, 4 * (layers * (sbh * 4 + (sbh * 12 + a_s2_b) / tp) + sbh)) << "tp " << tp;
  }
}

TEST(StatesTest, WeightsGradientsAndTwoMoments) {
  const std::vector<StageContext> contexts = ContextsOf(SmallModel(4), {.tp = 2, .pp = 2}, 1);
  const LayerShape shape = contexts[0].shape();
  const StateBytes first = StatesOf(contexts[0]), last = StatesOf(contexts[1]);
  const int64_t layer = LayerParameters(LayerType::kTransformer, shape);
  EXPECT_EQ(first.weights, Bytes(4 * (2 * layer + (128 + 16) * 32)));
  EXPECT_EQ(last.weights, Bytes(4 * (2 * layer + 128 * 32 + 2 * 32)));
  EXPECT_EQ(first.total(), first.weights * 4);
}

TEST(BufferKeyTextTest, NamesTensorLayerAndMicrobatch) {
  EXPECT_EQ(BufferKeyText({Tensor::kProbs, 12, 3}), "probs[12,3]");
  EXPECT_EQ(BufferKeyText({Tensor::kX, kHeadLayer, 0}), "x[h,0]");
  EXPECT_EQ(BufferKeyText({Tensor::kX, kEmbeddingLayer, 0}), "x[e,0]");
  EXPECT_EQ(BufferKeyText({Tensor::kGrad, kNoLayer, 1}), "grad[1]");
  EXPECT_EQ(BufferKeyText({Tensor::kWorkspace, kNoLayer, kNoMicrobatch}), "workspace[]");
}

TEST(PlanMemoryTest, TheArenaIsTheLivePeakUnderNamedPolicies) {
  for (const RecomputeMode mode :
       {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective}) {
    for (const int32_t pp : {1, 2, 4}) {
      const Pipeline p = NamedPipeline(mode, 8, {.tp = 2, .pp = pp}, 8);
      for (size_t s = 0; s < p.programs.size(); ++s) {
        const absl::StatusOr<MemoryPlan> plan = PlanMemory(p.programs[s], p.contexts[s]);
        ASSERT_TRUE(plan.ok());
        EXPECT_LE(plan->arena.value, plan->live_peak.value * 1.005) << EnumName(mode) << " stage " << s << " of " << pp;
      }
    }
  }
}

TEST(PlanMemoryTest, ReportsWhatFoldLivenessReports) {
  EXPECT_EQ(PlanMemory(ParsedProgram("0F0:0.attn"), Stage(0)).status().code(), absl::StatusCode::kFailedPrecondition);
  const absl::StatusOr<MemoryPlan> empty = PlanMemory({}, Stage(0));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->arena, Bytes(0));
}

TEST(PlanMemoryTest, IsDeterministic) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 20; ++i) {
    const Pipeline p = RandomPipeline(rng);
    const absl::StatusOr<MemoryPlan> a = PlanMemory(p.programs[0], p.contexts[0]);
    const absl::StatusOr<MemoryPlan> b = PlanMemory(p.programs[0], p.contexts[0]);
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(a->buffers.size(), b->buffers.size());
    for (size_t k = 0; k < a->buffers.size(); ++k) ASSERT_EQ(a->buffers[k].offset, b->buffers[k].offset);
  }
}

}  // namespace
}  // namespace lynx
