// The table of action kinds, and the parser and printer of action text. See action.h.
#include "planner/program/action.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

using enum ActionKind;

// What the text of an action names after the kind. kSegment: microbatch, layer and segment.
enum class Names : uint8_t { kNothing, kMicrobatch, kLayer, kMicrobatchAndLayer, kSegment };

// The table has two sorts of rows. A row without a group describes one kind of action (kWhole). A row with a group describes
// two kinds: the start of a transfer, and its wait, which is the next kind in the enum.
struct Row {
  ActionKind kind;
  std::string_view letters, words;
  Group group;
  Names names;
  StepPart part;
  Operands operands = Operands::kNone;
  Collective collective = Collective::kNone;
  Flow flow = Flow::kNone;
};

constexpr Row Compute(ActionKind kind, std::string_view letters, std::string_view words, StepPart part,
                      Operands operands = Operands::kNone) {
  return {kind, letters, words, Group::kNone, Names::kSegment, part, operands};
}

constexpr Row ExpertGroup(ActionKind kind, std::string_view letters, std::string_view words, StepPart part) {
  return {kind, letters, words, Group::kExpert, Names::kSegment, part, Operands::kNone, Collective::kAllToAll};
}

constexpr Row TensorGroup(ActionKind kind, std::string_view letters, std::string_view words, StepPart part,
                          Collective collective) {
  return {kind, letters, words, Group::kTensor, Names::kSegment, part, Operands::kNone, collective};
}

constexpr Row Boundary(ActionKind kind, std::string_view letters, std::string_view words, Group group, StepPart part,
                       Flow flow) {
  return {kind, letters, words, group, Names::kMicrobatch, part, Operands::kNone, Collective::kNone, flow};
}

constexpr Row HostCopy(ActionKind kind, std::string_view letters, std::string_view words, Flow flow) {
  return {
      kind, letters, words, Group::kHost, Names::kMicrobatchAndLayer, StepPart::kOther, Operands::kTensors, Collective::kNone,
      flow};
}

// clang-format off
constexpr Row kRows[] = {
    Compute(kForward, "F", "forward", StepPart::kForward),
    Compute(kBackward, "B", "input gradient", StepPart::kBackward),
    Compute(kWeight, "W", "weight gradient", StepPart::kWeight),
    Compute(kRecompute, "R", "recomputation", StepPart::kRecompute, Operands::kOps),
    TensorGroup(kAllReduceStart, "AR", "all-reduce", StepPart::kForward, Collective::kAllReduce),
    TensorGroup(kBackwardAllReduceStart, "BAR", "all-reduce of gradients", StepPart::kBackward, Collective::kAllReduce),
    TensorGroup(kRecomputeAllReduceStart, "RAR", "all-reduce repeated by recomputation", StepPart::kRecompute, Collective::kAllReduce),
    TensorGroup(kAllGatherStart, "AG", "all-gather", StepPart::kForward, Collective::kAllGather),
    TensorGroup(kBackwardAllGatherStart, "BAG", "all-gather of gradients", StepPart::kBackward, Collective::kAllGather),
    TensorGroup(kRecomputeAllGatherStart, "RAG", "all-gather repeated by recomputation", StepPart::kRecompute, Collective::kAllGather),
    TensorGroup(kReduceScatterStart, "RS", "reduce-scatter", StepPart::kForward, Collective::kReduceScatter),
    TensorGroup(kBackwardReduceScatterStart, "BRS", "reduce-scatter of gradients", StepPart::kBackward, Collective::kReduceScatter),
    TensorGroup(kRecomputeReduceScatterStart, "RRS", "reduce-scatter repeated by recomputation", StepPart::kRecompute, Collective::kReduceScatter),
    HostCopy(kOffloadStart, "OF", "offload to the host", Flow::kOut),
    HostCopy(kReloadStart, "LD", "reload from the host", Flow::kIn),
    Boundary(kSendForwardStart, "SF", "send of activations to the next stage", Group::kNextStage, StepPart::kForward, Flow::kOut),
    Boundary(kRecvForwardStart, "RF", "receipt of activations from the previous stage", Group::kPreviousStage, StepPart::kForward, Flow::kIn),
    Boundary(kSendBackwardStart, "SB", "send of gradients to the previous stage", Group::kPreviousStage, StepPart::kBackward, Flow::kOut),
    Boundary(kRecvBackwardStart, "RB", "receipt of gradients from the next stage", Group::kNextStage, StepPart::kBackward, Flow::kIn),
    {kDataReduceStart, "DP", "reduction of weight gradients over replicas", Group::kData, Names::kLayer, StepPart::kOther},
    {kNormStart, "NORM", "sum of the gradient norm and the loss", Group::kWorld, Names::kNothing, StepPart::kOther},
    {kOptimizer, "OPT", "optimizer step", Group::kNone, Names::kNothing, StepPart::kOther},
    {kWeightGatherStart, "PG", "gathering of weights over replicas", Group::kData, Names::kLayer, StepPart::kOther},
    ExpertGroup(kAllToAllStart, "AA", "all-to-all of experts", StepPart::kForward),
    ExpertGroup(kBackwardAllToAllStart, "BAA", "all-to-all of gradients of experts", StepPart::kBackward),
    ExpertGroup(kRecomputeAllToAllStart, "RAA", "all-to-all of experts repeated by recomputation", StepPart::kRecompute),
    {kExpertReduceStart, "XP", "reduction of weight gradients of experts over their replicas", Group::kExpertData, Names::kLayer, StepPart::kOther},
    {kExpertGatherStart, "XG", "gathering of weights of experts over their replicas", Group::kExpertData, Names::kLayer, StepPart::kOther},
};
// clang-format on

constexpr ActionInfo InfoOfRow(const Row& row, Phase phase) {
  const auto wait = static_cast<ActionKind>(static_cast<uint8_t>(row.kind) + 1);
  const Stream transfers = row.group == Group::kHost ? Stream::kCopy : Stream::kCommunication;
  return {.kind = phase == Phase::kWait ? wait : row.kind,
          .letters = row.letters,
          .words = row.words,
          .phase = phase,
          .stream = phase == Phase::kStart ? transfers : Stream::kCompute,  // a wait blocks the compute stream
          .group = row.group,
          .counterpart = phase == Phase::kStart ? wait : row.kind,
          .has_microbatch = row.names != Names::kNothing && row.names != Names::kLayer,
          .has_layer = row.names != Names::kNothing && row.names != Names::kMicrobatch,
          .has_segment = row.names == Names::kSegment,
          .operands = row.operands,
          .part = row.part,
          .collective = row.collective,
          .flow = row.flow};
}

constexpr std::array<ActionInfo, kActionKindCount> MakeTable() {
  std::array<ActionInfo, kActionKindCount> table{};
  const auto set = [&](const ActionInfo& info) { table[static_cast<size_t>(info.kind)] = info; };
  for (const Row& row : kRows) {
    if (row.group == Group::kNone) {
      set(InfoOfRow(row, Phase::kWhole));
      continue;
    }
    for (const Phase phase : {Phase::kStart, Phase::kWait}) set(InfoOfRow(row, phase));
  }
  return table;
}

// The index is the ActionKind.
constexpr std::array<ActionInfo, kActionKindCount> kActions = MakeTable();

constexpr bool EachKindHasARow() {
  for (const ActionInfo& info : kActions) {
    if (info.letters.empty()) return false;
  }
  return true;
}
static_assert(EachKindHasARow());

// The kinds that start collectives. The indices are Collective and StepPart. ActionKind::kForward means that there is no such
// collective.
using Starts = std::array<std::array<ActionKind, static_cast<size_t>(StepPart::kOther) + 1>,
                          static_cast<size_t>(Collective::kAllToAll) + 1>;
constexpr Starts StartsOfCollectives() {
  Starts starts{};
  for (const ActionInfo& info : kActions) {
    if (info.collective == Collective::kNone || info.phase != Phase::kStart) continue;
    starts[static_cast<size_t>(info.collective)][static_cast<size_t>(info.part)] = info.kind;
  }
  return starts;
}
constexpr Starts kStarts = StartsOfCollectives();

ActionKind StartOf(Collective kind, StepPart part) {
  const ActionKind start = kStarts[static_cast<size_t>(kind)][static_cast<size_t>(part)];
  LYNX_CHECK(start != kForward);
  return start;
}

std::string LayerText(int32_t layer) {
  if (layer == kEmbeddingLayer) return "e";
  if (layer == kHeadLayer) return "h";
  return absl::StrCat(layer);
}

template <class Enum>
void AppendSet(uint64_t set, std::string& text) {
  char separator = '(';
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    if (!Contains(set, static_cast<Enum>(i))) continue;
    text += separator;
    text += EnumName(static_cast<Enum>(i));
    separator = ',';
  }
  text += ')';
}

// Parses one word from left to right. Every error names the word and the position of the wrong character.
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
      if (!ParseEnum(Name(), action.segment)) {
        return Error(start, "a segment (embed, norm1, attn, norm2, mlp, head, out or end)");
      }
    }
    if (info.operands == Operands::kOps) {
      LYNX_ASSIGN_OR_RETURN(action.ops, Set<Op>("an op name", "each op once"));
    } else if (info.operands == Operands::kTensors) {
      LYNX_ASSIGN_OR_RETURN(action.tensors, Set<Tensor>("a tensor name", "each tensor once"));
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

  // Parses names in parentheses into a bit mask in which bit i is the enum value i.
  template <class Enum>
  absl::StatusOr<uint64_t> Set(const char* what, const char* once) {
    LYNX_RETURN_IF_ERROR(Expect('('));
    uint64_t set = 0;
    while (true) {
      const size_t start = at_;
      Enum value;
      if (!ParseEnum(Name(), value)) return Error(start, what);
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
  LYNX_CHECK(static_cast<size_t>(kind) < kActions.size());
  return kActions[static_cast<size_t>(kind)];
}

ActionKind CollectiveStart(Collective kind, Pass pass) {
  LYNX_CHECK(pass != Pass::kWeight);
  return StartOf(kind, pass == Pass::kForward ? StepPart::kForward : StepPart::kBackward);
}

ActionKind RepeatedCollectiveStart(Collective kind) { return StartOf(kind, StepPart::kRecompute); }

LayerType LayerTypeOf(int32_t layer) {
  if (layer == kEmbeddingLayer) return LayerType::kEmbedding;
  if (layer == kHeadLayer) return LayerType::kHead;
  LYNX_CHECK(layer >= 0);
  return LayerType::kTransformer;
}

std::vector<Op> OpsOf(const LayerGraph& graph, const Action& action) {
  const auto ops_of = [&](Pass pass) { return graph.OpsOf(LayerTypeOf(action.layer), action.segment, pass); };
  switch (action.kind) {
    case kForward: return ops_of(Pass::kForward);
    case kBackward: return ops_of(Pass::kBackward);
    case kWeight: return ops_of(Pass::kWeight);
    case kRecompute: {
      std::vector<Op> ops = ops_of(Pass::kForward);
      std::erase_if(ops, [&](Op op) { return !Contains(action.ops, op); });
      return ops;
    }
    default: return {};
  }
}

std::string ActionText(const Action& action) {
  const ActionInfo& info = InfoOf(action.kind);
  std::string text = absl::StrCat(action.stage, std::string(info.letters));
  if (info.phase != Phase::kWhole) text += info.phase == Phase::kStart ? '+' : '-';
  if (info.has_microbatch) absl::StrAppend(&text, action.microbatch);
  if (info.has_layer) absl::StrAppend(&text, ":", LayerText(action.layer));
  if (info.has_segment) absl::StrAppend(&text, ".", EnumName(action.segment));
  if (info.operands == Operands::kOps) AppendSet<Op>(action.ops, text);
  if (info.operands == Operands::kTensors) AppendSet<Tensor>(action.tensors, text);
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
