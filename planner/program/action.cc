// The table of action kinds, and action text. See action.h.
#include "planner/program/action.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

using enum ActionKind;

constexpr auto kC = Stream::kCompute;
constexpr auto kX = Stream::kCommunication;
constexpr auto kCopy = Stream::kCopy;

// clang-format off
// Columns: kind, letters, phase, stream, group, counterpart | microbatch, layer, segment, operands | pass of the segment,
// collective, repeated. Indexed by ActionKind. A wait has the compute stream, because it blocks that stream.
constexpr std::array<ActionInfo, kActionKindCount> kActions = {{
    {kForward, "F", Phase::kWhole, kC, Group::kNone, kForward, true, true, true, Operands::kNone, Pass::kForward},
    {kBackward, "B", Phase::kWhole, kC, Group::kNone, kBackward, true, true, true, Operands::kNone, Pass::kBackward},
    {kWeight, "W", Phase::kWhole, kC, Group::kNone, kWeight, true, true, true, Operands::kNone, Pass::kBackward},
    {kRecompute, "R", Phase::kWhole, kC, Group::kNone, kRecompute, true, true, true, Operands::kOps, Pass::kForward},
    {kAllReduceStart, "AR", Phase::kStart, kX, Group::kTensor, kAllReduceWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllReduce},
    {kAllReduceWait, "AR", Phase::kWait, kC, Group::kTensor, kAllReduceStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllReduce},
    {kBackwardAllReduceStart, "BAR", Phase::kStart, kX, Group::kTensor, kBackwardAllReduceWait, true, true, true, Operands::kNone, Pass::kBackward, Collective::kAllReduce},
    {kBackwardAllReduceWait, "BAR", Phase::kWait, kC, Group::kTensor, kBackwardAllReduceStart, true, true, true, Operands::kNone, Pass::kBackward, Collective::kAllReduce},
    {kRecomputeAllReduceStart, "RAR", Phase::kStart, kX, Group::kTensor, kRecomputeAllReduceWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllReduce, true},
    {kRecomputeAllReduceWait, "RAR", Phase::kWait, kC, Group::kTensor, kRecomputeAllReduceStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllReduce, true},
    {kAllGatherStart, "AG", Phase::kStart, kX, Group::kTensor, kAllGatherWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllGather},
    {kAllGatherWait, "AG", Phase::kWait, kC, Group::kTensor, kAllGatherStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllGather},
    {kBackwardAllGatherStart, "BAG", Phase::kStart, kX, Group::kTensor, kBackwardAllGatherWait, true, true, true, Operands::kNone, Pass::kBackward, Collective::kAllGather},
    {kBackwardAllGatherWait, "BAG", Phase::kWait, kC, Group::kTensor, kBackwardAllGatherStart, true, true, true, Operands::kNone, Pass::kBackward, Collective::kAllGather},
    {kRecomputeAllGatherStart, "RAG", Phase::kStart, kX, Group::kTensor, kRecomputeAllGatherWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllGather, true},
    {kRecomputeAllGatherWait, "RAG", Phase::kWait, kC, Group::kTensor, kRecomputeAllGatherStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kAllGather, true},
    {kReduceScatterStart, "RS", Phase::kStart, kX, Group::kTensor, kReduceScatterWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kReduceScatter},
    {kReduceScatterWait, "RS", Phase::kWait, kC, Group::kTensor, kReduceScatterStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kReduceScatter},
    {kBackwardReduceScatterStart, "BRS", Phase::kStart, kX, Group::kTensor, kBackwardReduceScatterWait, true, true, true, Operands::kNone, Pass::kBackward, Collective::kReduceScatter},
    {kBackwardReduceScatterWait, "BRS", Phase::kWait, kC, Group::kTensor, kBackwardReduceScatterStart, true, true, true, Operands::kNone, Pass::kBackward, Collective::kReduceScatter},
    {kRecomputeReduceScatterStart, "RRS", Phase::kStart, kX, Group::kTensor, kRecomputeReduceScatterWait, true, true, true, Operands::kNone, Pass::kForward, Collective::kReduceScatter, true},
    {kRecomputeReduceScatterWait, "RRS", Phase::kWait, kC, Group::kTensor, kRecomputeReduceScatterStart, true, true, true, Operands::kNone, Pass::kForward, Collective::kReduceScatter, true},
    {kOffloadStart, "OF", Phase::kStart, kCopy, Group::kHost, kOffloadWait, true, true, false, Operands::kTensors, Pass::kForward},
    {kOffloadWait, "OF", Phase::kWait, kC, Group::kHost, kOffloadStart, true, true, false, Operands::kTensors, Pass::kForward},
    {kReloadStart, "LD", Phase::kStart, kCopy, Group::kHost, kReloadWait, true, true, false, Operands::kTensors, Pass::kForward},
    {kReloadWait, "LD", Phase::kWait, kC, Group::kHost, kReloadStart, true, true, false, Operands::kTensors, Pass::kForward},
    {kSendForwardStart, "SF", Phase::kStart, kX, Group::kNextStage, kSendForwardWait, true, false, false, Operands::kNone, Pass::kForward},
    {kSendForwardWait, "SF", Phase::kWait, kC, Group::kNextStage, kSendForwardStart, true, false, false, Operands::kNone, Pass::kForward},
    {kRecvForwardStart, "RF", Phase::kStart, kX, Group::kPreviousStage, kRecvForwardWait, true, false, false, Operands::kNone, Pass::kForward},
    {kRecvForwardWait, "RF", Phase::kWait, kC, Group::kPreviousStage, kRecvForwardStart, true, false, false, Operands::kNone, Pass::kForward},
    {kSendBackwardStart, "SB", Phase::kStart, kX, Group::kPreviousStage, kSendBackwardWait, true, false, false, Operands::kNone, Pass::kBackward},
    {kSendBackwardWait, "SB", Phase::kWait, kC, Group::kPreviousStage, kSendBackwardStart, true, false, false, Operands::kNone, Pass::kBackward},
    {kRecvBackwardStart, "RB", Phase::kStart, kX, Group::kNextStage, kRecvBackwardWait, true, false, false, Operands::kNone, Pass::kBackward},
    {kRecvBackwardWait, "RB", Phase::kWait, kC, Group::kNextStage, kRecvBackwardStart, true, false, false, Operands::kNone, Pass::kBackward},
    {kDataReduceStart, "DP", Phase::kStart, kX, Group::kData, kDataReduceWait, false, true, false, Operands::kNone, Pass::kBackward},
    {kDataReduceWait, "DP", Phase::kWait, kC, Group::kData, kDataReduceStart, false, true, false, Operands::kNone, Pass::kBackward},
    {kNormStart, "NORM", Phase::kStart, kX, Group::kWorld, kNormWait, false, false, false, Operands::kNone, Pass::kBackward},
    {kNormWait, "NORM", Phase::kWait, kC, Group::kWorld, kNormStart, false, false, false, Operands::kNone, Pass::kBackward},
    {kOptimizer, "OPT", Phase::kWhole, kC, Group::kNone, kOptimizer, false, false, false, Operands::kNone, Pass::kBackward},
    {kWeightGatherStart, "PG", Phase::kStart, kX, Group::kData, kWeightGatherWait, false, true, false, Operands::kNone, Pass::kForward},
    {kWeightGatherWait, "PG", Phase::kWait, kC, Group::kData, kWeightGatherStart, false, true, false, Operands::kNone, Pass::kForward},
}};
// clang-format on

std::string LayerText(int32_t layer) {
  if (layer == kEmbeddingLayer) return "e";
  if (layer == kHeadLayer) return "h";
  return absl::StrCat(layer);
}

template <class Enum>
void AppendSet(uint64_t set, int count, std::string_view (*name)(Enum), std::string& text) {
  char separator = '(';
  for (int i = 0; i < count; ++i) {
    if (!Contains(set, static_cast<Enum>(i))) continue;
    text += separator;
    text += name(static_cast<Enum>(i));
    separator = ',';
  }
  text += ')';
}

// Reads one word from left to right. Every error names the word and the position of the wrong character.
class ActionParser {
 public:
  explicit ActionParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Action> Parse() {
    Action action;
    LYNX_ASSIGN_OR_RETURN(action.stage, Number("a stage number"));
    LYNX_ASSIGN_OR_RETURN(action.kind, Kind());
    const ActionInfo& info = InfoOf(action.kind);
    if (info.has_microbatch) {
      LYNX_ASSIGN_OR_RETURN(action.microbatch, Number("a microbatch number"));
    }
    if (info.has_layer) {
      LYNX_RETURN_IF_ERROR(Expect(':'));
      LYNX_ASSIGN_OR_RETURN(action.layer, Layer());
    }
    if (info.has_segment) {
      LYNX_RETURN_IF_ERROR(Expect('.'));
      const size_t start = at_;
      if (!ParseSegment(Name(), action.segment)) {
        return Error(start, "a segment (embed, norm1, attn, norm2, mlp, head, out or end)");
      }
    }
    if (info.operands == Operands::kOps) {
      LYNX_ASSIGN_OR_RETURN(action.ops, Set("an op name", "each op once", ParseOp));
    } else if (info.operands == Operands::kTensors) {
      LYNX_ASSIGN_OR_RETURN(action.tensors, Set("a tensor name", "each tensor once", ParseTensor));
    }
    if (at_ != text_.size()) return Error(at_, "the end of the action");
    return action;
  }

 private:
  absl::Status Error(size_t at, const std::string& expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("action \"", std::string(text_), "\": expected ", expected, " at character ", at + 1));
  }

  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }

  absl::Status Expect(char c) {
    if (!At(c)) return Error(at_, absl::StrCat("'", std::string(1, c), "'"));
    ++at_;
    return absl::OkStatus();
  }

  // Each value has only one printed form: no sign, no leading zero, at most nine digits.
  absl::StatusOr<int32_t> Number(const char* what) {
    const size_t start = at_;
    int32_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - start < 9) {
      value = value * 10 + (text_[at_++] - '0');
    }
    const bool leading_zero = at_ - start > 1 && text_[start] == '0';
    if (at_ == start || leading_zero) return Error(start, what);
    return value;
  }

  std::string_view Name() {
    const size_t start = at_;
    while (at_ < text_.size() &&
           ((text_[at_] >= 'a' && text_[at_] <= 'z') || (text_[at_] >= '0' && text_[at_] <= '9') || text_[at_] == '_')) {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  absl::StatusOr<ActionKind> Kind() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= 'A' && text_[at_] <= 'Z') ++at_;
    const std::string_view letters = text_.substr(start, at_ - start);
    Phase phase = Phase::kWhole;
    if (At('+')) phase = Phase::kStart;
    if (At('-')) phase = Phase::kWait;
    bool known = false;
    for (const ActionInfo& info : kActions) {
      if (info.letters != letters) continue;
      known = true;
      if (info.phase != phase) continue;
      if (phase != Phase::kWhole) ++at_;
      return info.kind;
    }
    if (!known) return Error(start, "an action kind (F, B, W, R, AR, ...)");
    return Error(at_, phase == Phase::kWhole ? "'+' or '-'" : "no '+' or '-'");
  }

  absl::StatusOr<int32_t> Layer() {
    if (At('e') || At('h')) return text_[at_++] == 'e' ? kEmbeddingLayer : kHeadLayer;
    return Number("a layer (a number, e or h)");
  }

  // Names in parentheses, as a bit mask over their enum.
  template <class Enum>
  absl::StatusOr<uint64_t> Set(const char* what, const char* once, bool (*parse)(std::string_view, Enum&)) {
    LYNX_RETURN_IF_ERROR(Expect('('));
    uint64_t set = 0;
    while (true) {
      const size_t start = at_;
      Enum value;
      if (!parse(Name(), value)) return Error(start, what);
      if (Contains(set, value)) return Error(start, once);
      set |= Bit(value);
      if (!At(',')) break;
      ++at_;
    }
    LYNX_RETURN_IF_ERROR(Expect(')'));
    return set;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const ActionInfo& InfoOf(ActionKind kind) {
  const ActionInfo& info = kActions[static_cast<size_t>(kind)];
  LYNX_CHECK(info.kind == kind);
  return info;
}

ActionKind CollectiveStart(Collective kind, Pass pass, bool repeated) {
  for (const ActionInfo& info : kActions) {
    if (info.collective == kind && info.segment_pass == pass && info.repeated == repeated && info.phase == Phase::kStart) {
      return info.kind;
    }
  }
  LYNX_CHECK(!"no such collective");
  return kForward;
}

LayerType LayerTypeOf(int32_t layer) {
  if (layer == kEmbeddingLayer) return LayerType::kEmbedding;
  if (layer == kHeadLayer) return LayerType::kHead;
  LYNX_CHECK(layer >= 0);
  return LayerType::kTransformer;
}

std::string ActionText(const Action& action) {
  const ActionInfo& info = InfoOf(action.kind);
  std::string text = absl::StrCat(action.stage, std::string(info.letters));
  if (info.phase != Phase::kWhole) text += info.phase == Phase::kStart ? '+' : '-';
  if (info.has_microbatch) absl::StrAppend(&text, action.microbatch);
  if (info.has_layer) absl::StrAppend(&text, ":", LayerText(action.layer));
  if (info.has_segment) absl::StrAppend(&text, ".", std::string(SegmentName(action.segment)));
  if (info.operands == Operands::kOps) AppendSet<Op>(action.ops, kOpCount, OpName, text);
  if (info.operands == Operands::kTensors) AppendSet<Tensor>(action.tensors, kTensorCount, TensorName, text);
  return text;
}

absl::StatusOr<Action> ParseAction(std::string_view text) { return ActionParser(text).Parse(); }

std::string ProgramText(const Program& program) {
  std::string text;
  for (const Action& action : program) absl::StrAppend(&text, ActionText(action), "\n");
  return text;
}

absl::StatusOr<Program> ParseProgram(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  Program program;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    while (true) {
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpace)));
      if (line.empty()) break;
      const std::string_view word = line.substr(0, line.find_first_of(kSpace));
      line.remove_prefix(word.size());
      absl::StatusOr<Action> action = ParseAction(word);
      if (!action.ok()) return Annotate(action.status(), absl::StrCat("line ", line_number));
      program.push_back(*action);
    }
  }
  return program;
}

}  // namespace lynx
