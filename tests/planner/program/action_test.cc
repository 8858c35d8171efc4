#include "planner/program/action.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lynx {
namespace {

struct TextCase {
  const char* text;
  Action action;
};

std::vector<TextCase> TextCases() {
  using enum ActionKind;
  const auto layer = [](ActionKind kind, Segment segment, int32_t layer, OpSet ops = 0) {
    return Action{.kind = kind, .segment = segment, .stage = 0, .microbatch = 3, .layer = layer, .ops = ops};
  };
  const auto copy = [](ActionKind kind) {
    return Action{.kind = kind, .microbatch = 3, .layer = 12, .tensors = Bit(Tensor::kQkv) | Bit(Tensor::kFc1)};
  };
  const auto boundary = [](ActionKind kind, int32_t stage) { return Action{.kind = kind, .stage = stage, .microbatch = 3}; };
  return {
      {"0F3:12.mlp", layer(kForward, Segment::kMlp, 12)},
      {"0F3:e.embed", layer(kForward, Segment::kEmbed, kEmbeddingLayer)},
      {"0B3:12.mlp", layer(kBackward, Segment::kMlp, 12)},
      {"0W3:12.mlp", layer(kWeight, Segment::kMlp, 12)},
      {"0R3:12.attn(ln1,qkv)", layer(kRecompute, Segment::kAttn, 12, Bit(Op::kLn1) | Bit(Op::kQkv))},
      {"0AR+3:12.attn", layer(kAllReduceStart, Segment::kAttn, 12)},
      {"0AR-3:12.attn", layer(kAllReduceWait, Segment::kAttn, 12)},
      {"0BAR+3:12.mlp", layer(kBackwardAllReduceStart, Segment::kMlp, 12)},
      {"0BAR-3:12.mlp", layer(kBackwardAllReduceWait, Segment::kMlp, 12)},
      {"0RAR+3:12.attn", layer(kRecomputeAllReduceStart, Segment::kAttn, 12)},
      {"0RAR-3:12.attn", layer(kRecomputeAllReduceWait, Segment::kAttn, 12)},
      {"0AG+3:h.head", layer(kAllGatherStart, Segment::kHead, kHeadLayer)},
      {"0AG-3:h.head", layer(kAllGatherWait, Segment::kHead, kHeadLayer)},
      {"0AG+3:12.norm1", layer(kAllGatherStart, Segment::kNorm1, 12)},
      {"0BAG+3:12.out", layer(kBackwardAllGatherStart, Segment::kOut, 12)},
      {"0BAG-3:12.out", layer(kBackwardAllGatherWait, Segment::kOut, 12)},
      {"0RAG+3:12.norm2", layer(kRecomputeAllGatherStart, Segment::kNorm2, 12)},
      {"0RAG-3:12.norm2", layer(kRecomputeAllGatherWait, Segment::kNorm2, 12)},
      {"0RS+3:12.mlp", layer(kReduceScatterStart, Segment::kMlp, 12)},
      {"0RS-3:12.mlp", layer(kReduceScatterWait, Segment::kMlp, 12)},
      {"0BRS+3:12.attn", layer(kBackwardReduceScatterStart, Segment::kAttn, 12)},
      {"0BRS-3:12.attn", layer(kBackwardReduceScatterWait, Segment::kAttn, 12)},
      {"0RRS+3:12.attn", layer(kRecomputeReduceScatterStart, Segment::kAttn, 12)},
      {"0RRS-3:12.attn", layer(kRecomputeReduceScatterWait, Segment::kAttn, 12)},
      {"0OF+3:12(qkv,fc1)", copy(kOffloadStart)},
      {"0OF-3:12(qkv,fc1)", copy(kOffloadWait)},
      {"0LD+3:12(qkv,fc1)", copy(kReloadStart)},
      {"0LD-3:12(qkv,fc1)", copy(kReloadWait)},
      {"0SF+3", boundary(kSendForwardStart, 0)},
      {"0SF-3", boundary(kSendForwardWait, 0)},
      {"1RF+3", boundary(kRecvForwardStart, 1)},
      {"1RF-3", boundary(kRecvForwardWait, 1)},
      {"1SB+3", boundary(kSendBackwardStart, 1)},
      {"1SB-3", boundary(kSendBackwardWait, 1)},
      {"0RB+3", boundary(kRecvBackwardStart, 0)},
      {"0RB-3", boundary(kRecvBackwardWait, 0)},
      {"0DP+:12", Action{.kind = kDataReduceStart, .layer = 12}},
      {"0DP-:h", Action{.kind = kDataReduceWait, .layer = kHeadLayer}},
      {"0NORM+", Action{.kind = kNormStart}},
      {"0NORM-", Action{.kind = kNormWait}},
      {"0PG+:12", Action{.kind = kWeightGatherStart, .layer = 12}},
      {"0PG-:e", Action{.kind = kWeightGatherWait, .layer = kEmbeddingLayer}},
      {"0AA+3:12.norm2", layer(kAllToAllStart, Segment::kNorm2, 12)},
      {"0AA-3:12.mlp", layer(kAllToAllWait, Segment::kMlp, 12)},
      {"0BAA+3:12.out", layer(kBackwardAllToAllStart, Segment::kOut, 12)},
      {"0BAA-3:12.mlp", layer(kBackwardAllToAllWait, Segment::kMlp, 12)},
      {"0RAA+3:12.norm2", layer(kRecomputeAllToAllStart, Segment::kNorm2, 12)},
      {"0RAA-3:12.norm2", layer(kRecomputeAllToAllWait, Segment::kNorm2, 12)},
      {"0XP+:12", Action{.kind = kExpertReduceStart, .layer = 12}},
      {"0XP-:12", Action{.kind = kExpertReduceWait, .layer = 12}},
      {"0XG+:12", Action{.kind = kExpertGatherStart, .layer = 12}},
      {"0XG-:12", Action{.kind = kExpertGatherWait, .layer = 12}},
      {"12OPT", Action{.kind = kOptimizer, .stage = 12}},
  };
}

TEST(ActionTextTest, EveryKindPrintsAndParsesBack) {
  std::set<ActionKind> seen;
  for (const TextCase& c : TextCases()) {
    EXPECT_EQ(ActionText(c.action), c.text);
    const absl::StatusOr<Action> parsed = ParseAction(c.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, c.action) << c.text;
    seen.insert(c.action.kind);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kActionKindCount)) << "a kind has no case here";
}

TEST(ActionTextTest, OpsPrintInForwardOrderWhateverOrderIsParsed) {
  const absl::StatusOr<Action> parsed = ParseAction("0R3:12.attn(qkv,ln1)");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(ActionText(*parsed), "0R3:12.attn(ln1,qkv)");
}

TEST(ActionTextTest, ErrorsNameTheWordTheExpectationAndThePosition) {
  struct Case {
    const char* text;
    const char* expected;
  };
  const Case cases[] = {
      {"", "expected a stage number at character 1"},
      {"F3:12.mlp", "expected a stage number at character 1"},
      {"00F3:12.mlp", "expected a stage number at character 1"},
      {"9999999999OPT", "expected an action kind"},
      {"0", "expected an action kind (F, B, W, R, AR, ...) at character 2"},
      {"0Q3:12.mlp", "expected an action kind (F, B, W, R, AR, ...) at character 2"},
      {"0AR3:12.mlp", "expected '+' or '-' at character 4"},
      {"0F+3:12.mlp", "expected no '+' or '-' at character 3"},
      {"0F:12.mlp", "expected a microbatch number at character 3"},
      {"0F-3:12.mlp", "expected no '+' or '-' at character 3"},
      {"0F3.mlp", "expected ':' at character 4"},
      {"0F3:x.mlp", "expected a layer (a number, e or h) at character 5"},
      {"0F3:012.mlp", "expected a layer (a number, e or h) at character 5"},
      {"0F3:12mlp", "expected '.' at character 7"},
      {"0F3:12.mpl", "expected a segment (embed, norm1, attn, norm2, mlp, head, out or end) at character 8"},
      {"0F3:12.none", "expected a segment (embed, norm1, attn, norm2, mlp, head, out or end) at character 8"},
      {"0F3:12.mlp(ln2)", "expected the end of the action at character 11"},
      {"0R3:12.attn", "expected '(' at character 12"},
      {"0R3:12.attn()", "expected an op name at character 13"},
      {"0R3:12.attn(ln3)", "expected an op name at character 13"},
      {"0R3:12.attn(ln1,ln1)", "expected each op once at character 17"},
      {"0R3:12.attn(ln1", "expected ')' at character 16"},
      {"0OF+3:12", "expected '(' at character 9"},
      {"0OF+3:12(qvk)", "expected a tensor name at character 10"},
      {"0LD-3:12(qkv,qkv)", "expected each tensor once at character 14"},
      {"0SF+3:1", "expected the end of the action at character 6"},
      {"0DP+3:1", "expected ':' at character 5"},
      {"0OPT ", "expected the end of the action at character 5"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Action> parsed = ParseAction(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(parsed.status().message());
    EXPECT_NE(message.find(c.expected), std::string::npos) << message;
    EXPECT_NE(message.find('"' + std::string(c.text) + '"'), std::string::npos) << message;
  }
}

TEST(ProgramTextTest, PrintsOneActionALineAndParsesBack) {
  Program program;
  std::string text;
  for (const TextCase& c : TextCases()) {
    program.push_back(c.action);
    text += std::string(c.text) + "\n";
  }
  EXPECT_EQ(ProgramText(program), text);
  const absl::StatusOr<Program> parsed = ParseProgram(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, program);
}

TEST(ProgramTextTest, IgnoresSpaceAndComments) {
  const absl::StatusOr<Program> parsed = ParseProgram("# a step\n\n  0F0:0.attn\t0AR+0:0.attn # window\r\n0AR-0:0.attn");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ProgramText(*parsed), "0F0:0.attn\n0AR+0:0.attn\n0AR-0:0.attn\n");
  EXPECT_TRUE(ParseProgram("")->empty());
}

TEST(ProgramTextTest, ErrorsNameTheLine) {
  const absl::StatusOr<Program> parsed = ParseProgram("0F0:0.attn\n# fine\n0F0:0.mlp 0X0:0.end\n");
  ASSERT_FALSE(parsed.ok());
  const std::string message(parsed.status().message());
  EXPECT_EQ(message.find("line 3: action \"0X0:0.end\""), 0u) << message;
}

TEST(ActionTableTest, StartsAndWaitsAreCounterparts) {
  for (int i = 0; i < kActionKindCount; ++i) {
    const ActionInfo& info = InfoOf(static_cast<ActionKind>(i));
    const ActionInfo& other = InfoOf(info.counterpart);
    EXPECT_EQ(other.counterpart, info.kind);
    EXPECT_EQ(other.letters, info.letters);
    EXPECT_EQ(other.group, info.group);
    EXPECT_EQ(info.phase == Phase::kWhole, info.kind == other.kind);
    EXPECT_EQ(info.phase == Phase::kStart, info.stream != Stream::kCompute);
    EXPECT_EQ(info.group == Group::kNone, info.phase == Phase::kWhole);
    if (info.phase == Phase::kStart) {
      EXPECT_EQ(other.phase, Phase::kWait);
    }
  }
}

}  // namespace
}  // namespace lynx
