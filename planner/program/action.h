// Actions describe a training step as a program. The planner compiles a step into one list of actions per stage (all
// tensor- and data-parallel ranks of a stage run the same list); the worker interprets it. Overlap follows from the order
// of actions: a collective is a start and a wait, and the actions between them hide it.
//
// Text, one word per action (printed and parsed back exactly):
//
//   0F3:12.mlp             stage 0, forward, microbatch 3, layer 12, segment mlp
//   0B3:12.mlp  0W3:12.mlp input gradient; weight gradient
//   0R3:12.attn(ln1,qkv)   recompute these ops of that forward segment
//   0AR+3:12.attn  0AR-3:12.attn    start, wait: all-reduce that ends a forward segment
//   0BAR+3:12.mlp  0BAR-3:12.mlp    the same for a backward segment (gradients)
//   0RAR+3:12.attn 0RAR-3:12.attn   an all-reduce repeated by recomputation
//   0AG+3:h.head   0AG-3:h.head     all-gather of the loss statistics over vocabulary shards
//   0AG+3:12.norm1 0RS+3:12.attn    sequence parallelism: all-gather and reduce-scatter that end forward segments;
//   0BAG+3:12.out  0BRS+3:12.mlp    those of gradients that end backward segments;
//   0RAG+3:12.norm1 0RRS+3:12.attn  forward ones repeated by recomputation, or before a weight gradient
//   0OF+3:12(qkv,fc1) 0OF-3:12(qkv,fc1)  start, wait: offload these tensors to the host; their buffers are free after the wait
//   0LD+3:12(qkv,fc1) 0LD-3:12(qkv,fc1)  start, wait: reload them
//   0SF+3 0SF-3 1RF+3 1RF-3         stage boundary, forward: send x to the next stage, receive from the previous
//   1SB+3 1SB-3 0RB+3 0RB-3         backward: send the gradient to the previous stage, receive from the next
//   0DP+:12 0DP-:12        all-reduce of a layer's gradients over data-parallel replicas (a reduce-scatter if they shard
//                          the optimizer states)
//   0PG+:12 0PG-:12        all-gather of a layer's weights over data-parallel replicas after the optimizer
//   0NORM+ 0NORM-          sum over the world of the squared gradient norm and the loss
//   0OPT                   clip and update all weights of the rank
//
// Layers: 0..L-1 are the transformer layers, `e` is the embedding, `h` the head. Pure values; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_ACTION_H_
#define LYNX_PLANNER_PROGRAM_ACTION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

inline constexpr int32_t kEmbeddingLayer = -1;
inline constexpr int32_t kHeadLayer = -2;
inline constexpr int32_t kNoLayer = -3;
inline constexpr int32_t kNoMicrobatch = -1;

enum class ActionKind : uint8_t {
  kForward,
  kBackward,
  kWeight,
  kRecompute,
  kAllReduceStart,
  kAllReduceWait,
  kBackwardAllReduceStart,
  kBackwardAllReduceWait,
  kRecomputeAllReduceStart,
  kRecomputeAllReduceWait,
  kAllGatherStart,
  kAllGatherWait,
  kBackwardAllGatherStart,
  kBackwardAllGatherWait,
  kRecomputeAllGatherStart,
  kRecomputeAllGatherWait,
  kReduceScatterStart,
  kReduceScatterWait,
  kBackwardReduceScatterStart,
  kBackwardReduceScatterWait,
  kRecomputeReduceScatterStart,
  kRecomputeReduceScatterWait,
  kOffloadStart,
  kOffloadWait,
  kReloadStart,
  kReloadWait,
  kSendForwardStart,
  kSendForwardWait,
  kRecvForwardStart,
  kRecvForwardWait,
  kSendBackwardStart,
  kSendBackwardWait,
  kRecvBackwardStart,
  kRecvBackwardWait,
  kDataReduceStart,
  kDataReduceWait,
  kNormStart,
  kNormWait,
  kOptimizer,
  kWeightGatherStart,
  kWeightGatherWait,
};
inline constexpr int kActionKindCount = static_cast<int>(ActionKind::kWeightGatherWait) + 1;

// Where an action runs. Compute actions run one after another on the rank's compute stream. A start hands its transfer to
// the communication or the copy stream. A wait blocks the compute stream until that transfer is done.
enum class Stream : uint8_t { kCompute, kCommunication, kCopy };
enum class Phase : uint8_t { kWhole, kStart, kWait };

// The ranks that take part in a communication action. kHost: a copy to or from the rank's own host memory.
enum class Group : uint8_t { kNone, kTensor, kNextStage, kPreviousStage, kData, kWorld, kHost };

// What an action names in parentheses.
enum class Operands : uint8_t { kNone, kOps, kTensors };

// The part of a microbatch's training that an action belongs to. kOther: copies to and from the host, and the actions at the
// end of the step.
enum class StepPart : uint8_t { kForward, kBackward, kWeight, kRecompute, kOther };

// Direction of a send, a receive or a copy. kOut: it reads buffers of this rank's device. kIn: it writes them.
enum class Flow : uint8_t { kNone, kOut, kIn };

// The table of action kinds. A new kind needs a row there, one case in the engine and one golden test. Code that depends on
// properties of a kind reads these fields and does not list kinds.
struct ActionInfo {
  ActionKind kind;
  std::string_view letters;  // "F", "AR", ...: without the + or - that follows from `phase`
  std::string_view words;    // "all-reduce of gradients", ...: for people
  Phase phase;
  Stream stream;
  Group group;
  ActionKind counterpart;  // a start's wait, a wait's start; itself for kWhole
  bool has_microbatch;
  bool has_layer;
  bool has_segment;
  Operands operands;
  StepPart part;
  Collective collective;  // only for actions of the tensor-parallel group: the collective of a segment
  Flow flow;              // only for actions between stages and for copies

  // The pass whose segments `segment` names: kForward or kBackward.
  Pass segment_pass() const {
    return part == StepPart::kBackward || part == StepPart::kWeight ? Pass::kBackward : Pass::kForward;
  }
};
const ActionInfo& InfoOf(ActionKind kind);
// The start of the collective that ends a segment of `pass`. `kind` must not be Collective::kNone.
ActionKind CollectiveStart(Collective kind, Pass pass);
// The start of the repetition of a forward collective.
ActionKind RepeatedCollectiveStart(Collective kind);

struct Action {
  ActionKind kind = ActionKind::kForward;
  Segment segment = Segment::kNone;
  int32_t stage = 0;
  int32_t microbatch = kNoMicrobatch;
  int32_t layer = kNoLayer;
  OpSet ops = 0;          // only for kRecompute, where it is never empty
  TensorSet tensors = 0;  // only for offloads and reloads, where it is never empty

  bool operator==(const Action&) const = default;
};

using Program = std::vector<Action>;

LayerType LayerTypeOf(int32_t layer);
// The ops that an action computes, in the order of its pass. Empty for all actions but F, B, W and R.
std::vector<Op> OpsOf(const LayerGraph& graph, const Action& action);

std::string ActionText(const Action& action);
// Returns InvalidArgument with the word, the character and what was expected there.
absl::StatusOr<Action> ParseAction(std::string_view text);
// One action per line, with a final newline.
std::string ProgramText(const Program& program);
// Words separated by white space; `#` starts a comment to the end of the line. The error names the line.
absl::StatusOr<Program> ParseProgram(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_ACTION_H_
