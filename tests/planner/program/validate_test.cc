#include "planner/program/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "planner/program/validate_context.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// Returns programs for four layers with tp 2, pp 2, dp 2 and two microbatches. Everything is recomputed.
Pipeline Full() { return NamedPipeline(RecomputeMode::kFull, 4, {.tp = 2, .pp = 2, .dp = 2}, 2); }

absl::Status ValidateText(const std::string& text, const StageContext& context) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return ValidateProgram(*program, context);
}

// A change of a program's text (one action per line), and the error that the validator must report.
struct Mutation {
  int stage;
  const char* find;
  const char* replace;
  const char* named;  // the action that the error names
  const char* rule;
};

const Mutation kMutations[] = {
    // Wrong fields of actions.
    {0, "\n0F0:0.mlp", "\n1F0:0.mlp", "1F0:0.mlp", "the program is of stage 0"},
    {0, "\n0F0:0.mlp", "\n0F2:0.mlp", "0F2:0.mlp", "microbatches are 0 to 1"},
    {0, "\n0F0:0.mlp", "\n0F0:2.mlp", "0F0:2.mlp", "the layer is not on this stage, which has layers 0 to 1"},
    {0, "\n0F0:0.mlp", "\n0F0:h.head", "0F0:h.head", "the layer is not on this stage"},
    {1, "\n1F0:h.head", "\n1F0:e.embed", "1F0:e.embed", "the layer is not on this stage"},
    {0, "\n0F0:0.mlp", "\n0F0:0.head", "0F0:0.head", "the transformer layer has no such segment in this pass"},
    {0, "\n0B0:e.embed", "\n0B0:e.end", "0B0:e.end", "the embedding layer has no such segment in this pass"},
    {0, "\n0W0:1.mlp", "\n0W0:1.end", "0W0:1.end", "the segment has no weight pass"},
    {0, "\n0AR+0:0.attn", "\n0AR+0:0.end", "0AR+0:0.end", "no such collective ends this segment"},
    {1, "\n1AG+0:h.head", "\n1AR+0:h.head", "1AR+0:h.head", "no such collective ends this segment"},
    {0, "\n0AR+0:0.attn", "\n0AG+0:0.attn", "0AG+0:0.attn", "no such collective ends this segment"},
    {0, "\n0RAR+0:1.attn", "\n0RAR+0:1.mlp", "0RAR+0:1.mlp", "no such collective ends this segment"},
    {0, "\n0RAR+0:1.attn", "\n0RAR+0:e.embed", "0RAR+0:e.embed", "no such collective ends this segment"},
    {0, "R0:1.mlp(add1,ln2,fc1,gelu)", "R0:1.mlp(add1,ln2,fc1,gelu,fc2)", "0R0:1.mlp(add1,ln2,fc1,gelu,fc2)",
     "only the producers of recomputable tensors"},
    {0, "R0:1.mlp(add1,ln2,fc1,gelu)", "R0:1.end(add2)", "0R0:1.end(add2)", "only the producers of recomputable"},
    {0, "R0:1.mlp(add1,ln2,fc1,gelu)", "R0:1.mlp(ln1)", "0R0:1.mlp(ln1)", "only the producers of recomputable"},
    {0, "R0:1.mlp(add1,ln2,fc1,gelu)", "R0:e.embed(embed)", "0R0:e.embed(embed)", "only the producers of recomput"},
    {1, "\n1SB+0", "\n1SF+0", "1SF+0", "the last stage has no next stage"},
    {0, "\n0SF+0", "\n0SB+0", "0SB+0", "the first stage has no previous stage"},
    // Errors in the sequence of a microbatch's actions.
    {0, "\n0F0:0.mlp", "", "0AR+0:0.mlp", "microbatch 0's forward pass has 0F0:0.mlp next"},
    {0, "\n0F0:0.mlp", "\n0F0:0.mlp\n0F0:0.mlp", "0F0:0.mlp", "microbatch 0's forward pass has 0AR+0:0.mlp next"},
    {0, "\n0AR+0:0.attn\n0AR-0:0.attn", "", "0F0:0.mlp", "microbatch 0's forward pass has 0AR+0:0.attn next"},
    {0, "\n0AR-0:0.attn\n0F0:0.mlp", "\n0F0:0.mlp\n0AR-0:0.attn", "0F0:0.mlp", "has 0AR-0:0.attn next"},
    {1, "\n1AG+0:h.head\n1AG-0:h.head", "", "1F0:h.end", "has 1AG+0:h.head next"},
    {0, "\n0B0:1.end", "", "0B0:0.mlp", "microbatch 0's backward pass has 0B0:1.end next"},
    {1, "\n1RF-1", "", "1F1:2.attn", "microbatch 1's forward pass has 1RF-1 next"},
    {0, "\n0RB-0", "", "0B0:1.mlp", "microbatch 0's backward pass has 0RB-0 next"},
    {0, "\n0NORM+", "\n0F0:e.embed\n0NORM+", "0F0:e.embed", "microbatch 0's forward pass is already complete"},
    {0, "\n0F0:e.embed", "\n0B0:1.mlp\n0F0:e.embed", "0B0:1.mlp", "backward pass begins before its forward"},
    {1, "\n1RF+1", "\n1B1:h.head\n1RF+1", "1B1:h.head", "backward pass begins before its forward pass has ended"},
    // Errors of weight passes.
    {0, "\n0B0:1.mlp", "\n0W0:1.mlp\n0B0:1.mlp", "0W0:1.mlp", "a weight pass follows the backward pass of its segment"},
    {0, "\n0W0:1.mlp", "\n0W0:1.mlp\n0W0:1.mlp", "0W0:1.mlp", "the next is of microbatch 1"},
    {0, "\n0W0:1.mlp", "", "0W1:1.mlp", "the next is of microbatch 0"},
    {0, "\n0DP+:e\n0DP-:1\n0DP-:0\n0DP-:e\n", "\n0DP-:1\n0DP-:0\n", "0NORM+", "the step still lacks 0DP+:e"},
    {0, "\n0W1:0.attn", "", "0DP+:0", "gradients are reduced after the layer's last backward and weight pass"},
    {0, "\n0DP-:e\n", "\n", "0NORM+", "the step still lacks 0DP-:e"},
    // Errors of recomputation.
    {0, "\n0F0:1.end", "\n0R0:1.attn(ln1)\n0F0:1.end", "0R0:1.attn(ln1)", "recomputation follows the layer's forward"},
    {0, "\n0B0:1.end", "\n0B0:1.end\n0R0:1.attn(ln1)", "0R0:1.attn(ln1)", "is of no use"},
    {0, "\n0B0:1.end", "\n0R0:1.attn(ln1)\n0B0:1.end", "0R0:1.attn(ln1)", "an op is recomputed once"},
    {0, "qkv,probs,context,proj)\n0RAR+0:1.attn\n0RAR-0:1.attn", "qkv,probs,context)", "0R0:1.mlp(add1,ln2,fc1,gelu)",
     "add1 again changes x1"},
    {0, "\n0RAR+0:1.attn\n0RAR-0:1.attn", "", "0R0:1.mlp(add1,ln2,fc1,gelu)", "add1 again changes x1"},
    {0, "R0:1.mlp(add1,ln2", "R0:1.mlp(ln2", "0R0:1.mlp(ln2,fc1,gelu)", "reads x1, whose recomputation is not complete"},
    {0, "\n0R0:1.mlp(add1,ln2,fc1,gelu)", "", "0B0:1.attn", "reads x1, whose recomputation is not complete"},
    {0, "qkv,probs,context,proj)\n0RAR+0:1.attn", "qkv,probs,context)\n0RAR+0:1.attn", "0RAR+0:1.attn",
     "a repeated all-reduce follows the recomputation of proj, once"},
    {0, "\n0RAR-0:1.attn", "\n0RAR-0:1.attn\n0RAR+0:1.attn\n0RAR-0:1.attn", "0RAR+0:1.attn",
     "a repeated all-reduce follows the recomputation of proj, once"},
    // Errors of transfers.
    {0, "\n0SF-0", "", "0SF-1", "overtakes microbatch 0, which has not done this yet"},
    {0, "\n0B0:1.attn\n", "\n0RAR+0:0.attn\n0B0:1.attn\n", "0RAR+0:0.attn", "follows the recomputation of proj"},
    {0, "\n0DP+:0", "\n0DP-:0\n0DP+:0", "0DP-:0", "waits out of order: 0DP+:1 started first"},
    {1, "\n1DP+:h", "\n1DP-:h\n1DP+:h", "1DP-:h", "waits for a transfer that has not started"},
    {0, "\n0DP-:e", "\n0DP-:e\n0DP-:e", "0DP-:e", "waits for a transfer that has not started"},
    // Errors of data parallelism.
    {0, "\n0B1:1.end\n0DP+:1", "\n0DP+:1\n0B1:1.end", "0DP+:1", "gradients are reduced after the layer's last"},
    {0, "\n0DP+:1", "\n0DP+:1\n0DP+:1", "0DP+:1", "the layer's gradients are reduced once"},
    // Errors at the end of the step.
    {0, "\n0NORM-", "", "0OPT", "a step ends in NORM+, NORM-, OPT, once each"},
    {0, "\n0OPT", "\n0OPT\n0OPT", "0OPT", "a step ends in NORM+, NORM-, OPT, once each"},
    {0, "\n0OPT\n", "\n0OPT\n0SF+0\n", "0SF+0", "only NORM- and OPT may follow NORM+"},
    {0, "\n0DP-:e\n0NORM+", "\n0NORM+\n0DP-:e", "0NORM+", "the step still lacks 0DP-:e"},
};

TEST(ValidateTest, NamesTheActionAndTheRuleOfEachMutation) {
  const Pipeline full = Full();
  for (const Mutation& m : kMutations) {
    SCOPED_TRACE(absl::StrCat("\"", m.find, "\" -> \"", m.replace, "\""));
    const StageContext& context = full.contexts[static_cast<size_t>(m.stage)];
    const std::string text = "\n" + ProgramText(full.programs[static_cast<size_t>(m.stage)]);
    const size_t at = text.find(m.find);
    ASSERT_NE(at, std::string::npos);
    const std::string mutated = text.substr(0, at) + m.replace + text.substr(at + std::string(m.find).size());
    const absl::Status status = ValidateText(mutated, context);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("(", m.named, "): ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr(m.rule));
    EXPECT_EQ(std::string(status.message()).rfind("action ", 0), 0u) << status;
  }
}

TEST(ValidateTest, KindsWithoutGroupAreRejected) {
  const Pipeline single = NamedPipeline(RecomputeMode::kNone, 1, {}, 1);
  const std::string text = ProgramText(single.programs[0]);
  const struct {
    const char* before;
    const char* insert;
    const char* rule;
  } cases[] = {
      {"0F0:0.mlp", "0AR+0:0.attn", "there is no tensor-parallel group with tp 1"},
      {"0NORM+", "0DP+:0", "there is no data-parallel group with dp 1"},
      {"0NORM+", "0SB+0", "the first stage has no previous stage"},
      {"0NORM+", "0SF+0", "the last stage has no next stage"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ValidateText(
        absl::StrReplaceAll(text, {{std::string(c.before), absl::StrCat(c.insert, "\n", c.before)}}), single.contexts[0]);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.rule)) << status;
  }
}

TEST(ValidateTest, UnusedFieldsMustBeUnset) {
  const Pipeline full = Full();
  const auto with = [&](ActionKind kind, const std::function<void(Action&)>& change) {
    Program program = full.programs[0];
    for (Action& action : program) {
      if (action.kind != kind) continue;
      change(action);
      break;
    }
    return std::string(ValidateProgram(program, full.contexts[0]).message());
  };
  EXPECT_THAT(with(ActionKind::kForward, [](Action& a) { a.ops = 1; }), HasSubstr("the kind has no ops"));
  EXPECT_THAT(with(ActionKind::kNormStart, [](Action& a) { a.microbatch = 0; }), HasSubstr("microbatches are"));
  EXPECT_THAT(with(ActionKind::kSendForwardStart, [](Action& a) { a.layer = 1; }), HasSubstr("the layer is not"));
  EXPECT_THAT(with(ActionKind::kSendForwardStart, [](Action& a) { a.segment = Segment::kMlp; }),
              HasSubstr("the kind has no segment"));
}

TEST(ValidateTest, X1MayNotBeReadWhileItsCollectiveRuns) {
  const Pipeline full = Full();
  const std::string text =
      absl::StrReplaceAll(ProgramText(full.programs[0]),
                          {{"0R0:1.mlp(add1,ln2,fc1,gelu)\n", ""}, {"0RAR-0:1.attn\n", "0R0:1.mlp(ln2)\n0RAR-0:1.attn\n"}});
  EXPECT_THAT(std::string(ValidateText(text, full.contexts[0]).message()),
              HasSubstr("(0R0:1.mlp(ln2)): reads x1, whose recomputation is not complete"));
}

TEST(ValidateTest, AProgramThatStopsEarlySaysWhatIsMissing) {
  const Pipeline full = Full();
  Program program = full.programs[0];
  const auto message = [&] { return std::string(ValidateProgram(program, full.contexts[0]).message()); };
  program.pop_back();
  EXPECT_EQ(message(), absl::StrCat("stage 0: the program ends after ", program.size(), " actions: the step still lacks 0OPT"));
  program.pop_back();
  EXPECT_THAT(message(), HasSubstr("lacks 0NORM-"));
  program.pop_back();
  EXPECT_THAT(message(), HasSubstr("lacks 0NORM+"));
  program.pop_back();
  EXPECT_THAT(message(), HasSubstr("the step still lacks 0DP-:e"));
  program.clear();
  EXPECT_THAT(message(), HasSubstr("the step still lacks 0F0:e.embed"));
}

TEST(ValidateTest, WeightPassesMayComeLate) {
  // A schedule may run a weight pass later than its backward pass. Here all weight passes run just before NORM+.
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 2, {}, 1);
  Program program, late;
  for (const Action& action : p.programs[0]) {
    if (action.kind == ActionKind::kNormStart) program.insert(program.end(), late.begin(), late.end());
    (action.kind == ActionKind::kWeight ? late : program).push_back(action);
  }
  const absl::Status status = ValidateProgram(program, p.contexts[0]);
  EXPECT_TRUE(status.ok()) << status;
}

// If any one action is deleted or repeated, the program breaks a rule. The only exception is the deletion of a recomputation
// without proj and add1. The program then keeps the tensors of the forward pass.
TEST(ValidateTest, NoActionCanBeDroppedOrRepeated) {
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kSelective}) {
    for (const int32_t tp : {1, 2}) {
      const Pipeline p = NamedPipeline(mode, 2, {.tp = tp, .pp = 2, .dp = 2}, 3);
      for (size_t s = 0; s < p.programs.size(); ++s) {
        for (size_t i = 0; i < p.programs[s].size(); ++i) {
          const Action& action = p.programs[s][i];
          Program dropped = p.programs[s], repeated = p.programs[s];
          dropped.erase(dropped.begin() + static_cast<ptrdiff_t>(i));
          repeated.insert(repeated.begin() + static_cast<ptrdiff_t>(i), action);
          const bool optional =
              action.kind == ActionKind::kRecompute && !Contains(action.ops, Op::kProj) && !Contains(action.ops, Op::kAdd1);
          EXPECT_EQ(ValidateProgram(dropped, p.contexts[s]).ok(), optional) << "without " << ActionText(action);
          EXPECT_FALSE(ValidateProgram(repeated, p.contexts[s]).ok()) << "twice " << ActionText(action);
        }
      }
    }
  }
}

TEST(ValidateTest, ContextsThatCannotBeAreRejected) {
  const Pipeline full = Full();
  const auto with = [&](const std::function<void(StageContext&)>& change) {
    StageContext context = full.contexts[0];
    change(context);
    const absl::Status status = ValidateProgram(full.programs[0], context);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(with([](StageContext& c) { c.layout.tp = 0; }), HasSubstr("tp0 pp2 dp2 has a degree below 1"));
  EXPECT_THAT(with([](StageContext& c) { c.pipeline_rank = 2; }), HasSubstr("stage 2: there are 2 stages"));
  EXPECT_THAT(with([](StageContext& c) { c.microbatches = 0; }), HasSubstr("0 microbatches of 2 samples"));
  EXPECT_THAT(with([](StageContext& c) { c.model.heads = 3; }), HasSubstr("tp 2 does not divide"));
  EXPECT_THAT(with([](StageContext& c) { c.layout.ep = 2; }),
              HasSubstr("stage 0: parallel.ep is 2, and the model has no experts (model.moe.experts)"));
  EXPECT_THAT(with([](StageContext& c) { c.layout.ep = 0; }), HasSubstr("stage 0: parallel.ep is 0, below 1"));
  EXPECT_THAT(with([](StageContext& c) { c.slices[0].end_layer = 0; }), HasSubstr("layers [0, 0) of 4"));
  EXPECT_THAT(with([](StageContext& c) { c.slices[0].end_layer = 4; }), HasSubstr("layers [0, 4) of 4"));
  EXPECT_THAT(with([](StageContext& c) { c.slices[0].first_layer = 1; }), HasSubstr("layers [1, 2) of 4"));
}

TEST(ValidateTest, ExpertsDivideIntoTheRanksOfAGroupAndGroupsIntoAStage) {
  const auto error = [](const ModelSpec& model, const ParallelLayout& layout) {
    return std::string(CheckExpertGroups(model, layout).message());
  };
  ModelSpec model = SmallModel(4);
  model.moe = {.experts = 4, .top_k = 2};
  EXPECT_EQ(error(model, {.tp = 2, .dp = 2, .ep = 4}), "");
  EXPECT_EQ(error(model, {.dp = 3, .ep = 3}), "4 experts do not divide into tp1 pp1 dp3 ep3");
  EXPECT_EQ(error(model, {.dp = 3, .ep = 2}), "4 experts do not divide into tp1 pp1 dp3 ep2");
  EXPECT_EQ(error(model, {.ep = 0}), "parallel.ep is 0, below 1");
  model.moe = {};
  EXPECT_EQ(error(model, {.dp = 2}), "");
  EXPECT_EQ(error(model, {.dp = 2, .ep = 2}), "parallel.ep is 2, and the model has no experts (model.moe.experts)");
}

// Returns the error for a rank's program after the first `find` in its text is replaced.
std::string ErrorWith(const Pipeline& pipeline, size_t rank, const std::string& find, const std::string& replace) {
  std::string text = "\n" + ProgramText(pipeline.programs[rank]);
  const size_t at = text.find(find);
  EXPECT_NE(at, std::string::npos) << find << " in" << text;
  if (at == std::string::npos) return "";
  return std::string(ValidateText(text.replace(at, find.size(), replace), pipeline.contexts[rank]).message());
}

TEST(ValidateTest, NeighboursOnOneRankHandOnInTurn) {
  // Stages 0 and 3 are on rank 0. Stages 1 and 2 are on rank 1, where the V turns.
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 4, {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, 2);
  EXPECT_THAT(ErrorWith(p, 1, "\n1F0:1.attn", "\n2F0:2.attn\n1F0:1.attn"),
              HasSubstr("(2F0:2.attn): begins before stage 1, on the same rank, has ended its forward pass"));
  EXPECT_THAT(ErrorWith(p, 1, "\n2B0:2.mlp", "\n1B0:1.mlp\n2B0:2.mlp"),
              HasSubstr("(1B0:1.mlp): begins before stage 2, on the same rank, has ended its backward pass"));
  EXPECT_THAT(ErrorWith(p, 1, "\n1F0:1.attn", "\n1SF+0\n1F0:1.attn"),
              HasSubstr("(1SF+0): the next stage is on this rank: nothing is sent"));
  EXPECT_THAT(ErrorWith(p, 1, "\n2F0:2.attn", "\n2RF+0\n2F0:2.attn"),
              HasSubstr("(2RF+0): the previous stage is on this rank: nothing is sent"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0F0:0.attn", "\n1F0:0.attn"), HasSubstr("the program is of stages 0, 3"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0OPT", "\n3OPT"), HasSubstr("(3OPT): the program is of stage 0"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0W0:0.mlp", ""), HasSubstr("the next is of microbatch 0"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0W1:0.mlp", ""), HasSubstr("the step still lacks 0W1:0.mlp"));
}

TEST(ValidateTest, AMicrobatchStaysInItsCopyOfTheModel) {
  // Stages 0 and 3 on rank 0 belong to different copies of the model. Microbatches 0 and 2 use the copy of stage 0, and
  // microbatches 1 and 3 use the copy of stage 3.
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 2, {.pp = 2, .schedule = ScheduleKind::kChimera}, 4);
  ASSERT_TRUE(ValidatePrograms(p.programs, p.contexts).ok()) << ValidatePrograms(p.programs, p.contexts);
  EXPECT_THAT(ErrorWith(p, 0, "\n3RF+1", "\n3RF+0"),
              HasSubstr("(0F0:e.embed): microbatch 0 goes through the other copy of the model, by stage 3"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0F2:e.embed", "\n0F1:e.embed"), HasSubstr("goes through the other copy"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0B0:0.end", "\n0B0:0.end\n0DP+:0"),
              HasSubstr("(0B2:0.mlp): the layer's gradients have been reduced already"));
  std::vector<Program> renamed = p.programs;
  for (Action& action : renamed[0]) {
    if (action.microbatch != kNoMicrobatch) action.microbatch ^= 1;
  }
  EXPECT_TRUE(ValidateProgram(renamed[0], p.contexts[0]).ok()) << ValidateProgram(renamed[0], p.contexts[0]);
  EXPECT_THAT(std::string(ValidatePrograms(renamed, p.contexts).message()),
              HasSubstr("stage 1, on rank 1, runs other microbatches than stage 0, on rank 0"));
  std::vector<StageContext> unlike = p.contexts;
  for (StageContext& context : unlike) context.model.layers = 3;
  unlike[0].slices[1].end_layer = unlike[1].slices[0].end_layer = 3;
  unlike[0].slices[1].first_layer = 2;
  unlike[1].slices[1].end_layer = 2;
  EXPECT_THAT(std::string(ValidatePrograms(p.programs, unlike).message()),
              HasSubstr("(stage 2, layers [0, 2), tp1 pp2 dp1 chimera) does not continue"));
}

// If a tied embedding is on the head's rank, it is reduced only after the gradients of the output projection have been added to
// it.
TEST(ValidateTest, TheTiedEmbeddingIsReducedAfterTheHeadsWeights) {
  ModelSpec model = SmallModel(4);
  model.tied_embeddings = true;
  const ParallelLayout layout{.dp = 2, .schedule = ScheduleKind::kZeroBubble};
  const StageContext context = PipelineContexts(model, layout, 1, 2, {4}).front();
  Program program = LowerStage(context, NamedPolicy(context.graph(), RecomputeMode::kNone, 4));
  ASSERT_TRUE(ValidateProgram(program, context).ok()) << ValidateProgram(program, context);
  const auto reduction = std::find_if(program.begin(), program.end(), [](const Action& action) {
    return action.kind == ActionKind::kDataReduceStart && action.layer == kEmbeddingLayer;
  });
  // `last` is the place directly after the embedding's last backward pass, where an untied embedding is reduced.
  const auto last = std::find_if(std::reverse_iterator(reduction), program.rend(), [](const Action& action) {
                      return action.kind == ActionKind::kBackward && action.layer == kEmbeddingLayer;
                    }).base();
  std::rotate(last, reduction, reduction + 1);
  EXPECT_THAT(std::string(ValidateProgram(program, context).message()),
              HasSubstr("(0W1:h.head): the gradients of the tied embedding have been reduced already"));
}

TEST(ValidateTest, NothingTouchesWhatATransferIsAbout) {
  const ParallelLayout layout{.tp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubble};
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 1, layout, 1);
  // The weight gradient of the MLP runs before the gather of its input has ended.
  EXPECT_THAT(ErrorWith(p, 0, "\n0RAG-0:0.norm2\n0RAG+0:0.norm1\n0W0:0.mlp", "\n0W0:0.mlp\n0RAG-0:0.norm2\n0RAG+0:0.norm1"),
              HasSubstr("(0W0:0.mlp): touches ln2_full[0,0], while 0RAG+0:0.norm2 writes it"));
  EXPECT_THAT(ErrorWith(p, 0, "\n0NORM+", "\n0RAG+0:0.norm1\n0RAG-0:0.norm1\n0NORM+"), HasSubstr("is of no use"));
}

TEST(ValidateTest, AContextHasTheSlicesOfItsLayout) {
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 4, {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, 2);
  const auto with = [&](const std::function<void(StageContext&)>& change) {
    StageContext context = p.contexts[0];
    change(context);
    return std::string(ValidateProgram(p.programs[0], context).message());
  };
  EXPECT_THAT(with([](StageContext& c) { c.slices.pop_back(); }),
              HasSubstr("stage 0: it has 1 slices of the model, tp1 pp2 dp1 zero-bubble-v puts 2 on each"));
  EXPECT_THAT(with([](StageContext& c) { std::swap(c.slices[0], c.slices[1]); }),
              HasSubstr("layers [3, 4) of 4 are not what stage 0 of 4 can have"));
  EXPECT_THAT(with([](StageContext& c) { c.layout.schedule = ScheduleKind::kInterleaved; }),
              HasSubstr("interleaved puts 2 to 256 chunks on each rank, not 1"));
  EXPECT_THAT(with([](StageContext& c) {
                c.layout.schedule = ScheduleKind::kChimera;
                c.microbatches = 3;
              }),
              HasSubstr("chimera needs an even number of microbatches"));
  EXPECT_THAT(with([](StageContext& c) { c.layout.virtual_stages = 0; }), HasSubstr("has a degree below 1"));
  EXPECT_THAT(with([](StageContext& c) { c.layout.pp = 5000; }), HasSubstr("more than 4096 stages"));
}

TEST(ValidateProgramsTest, StagesMustMatch) {
  const Pipeline full = Full();
  EXPECT_TRUE(ValidatePrograms(full.programs, full.contexts).ok());
  EXPECT_THAT(std::string(ValidatePrograms({}, {}).message()), HasSubstr("0 programs for 0 stages"));
  EXPECT_THAT(std::string(ValidatePrograms({full.programs[0]}, full.contexts).message()), HasSubstr("1 programs for 2 stages"));
  EXPECT_THAT(std::string(ValidatePrograms({full.programs[0]}, {full.contexts[0]}).message()),
              HasSubstr("does not continue the stages before it"));

  std::vector<StageContext> gap = full.contexts;
  gap[1].slices[0].first_layer = 3;
  EXPECT_THAT(std::string(ValidatePrograms(full.programs, gap).message()),
              HasSubstr("context 1 (stage 1, layers [3, 4), tp2 pp2 dp2) does not continue"));
  std::vector<StageContext> other_batch = full.contexts;
  other_batch[1].micro_batch = 1;
  EXPECT_FALSE(ValidatePrograms(full.programs, other_batch).ok());

  std::vector<Program> broken = full.programs;
  broken[1].pop_back();
  EXPECT_THAT(std::string(ValidatePrograms(broken, full.contexts).message()), HasSubstr("stage 1: the program ends"));
}

}  // namespace
}  // namespace lynx
