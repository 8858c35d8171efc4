// Actions describe a training step as a program. The planner compiles a step into one list of actions per stage, and the worker
// runs the list. All tensor- and data-parallel ranks of a stage run the same list. Overlap follows from the order of actions: a
// collective is a start and a wait, and the collective runs while the actions between them run.
//
// An action prints as one word, and the word parses back to the same action:
//
//   0F3:12.mlp             stage 0, forward, microbatch 3, layer 12, segment mlp
//   0B3:12.mlp  0W3:12.mlp input gradient; weight gradient
//   0R3:12.attn(ln1,qkv)   recompute these ops of that forward segment
//   0AR+3:12.attn  0AR-3:12.attn    start, wait: all-reduce that ends a forward segment
//   0BAR+3:12.mlp  0BAR-3:12.mlp    the same for a backward segment (gradients)
//   0RAR+3:12.attn 0RAR-3:12.attn   an all-reduce that recomputation repeats
//   0AG+3:h.head   0AG-3:h.head     all-gather of the loss statistics over vocabulary shards
//   0AG+3:12.norm1 0RS+3:12.attn    sequence parallelism: all-gather and reduce-scatter that end forward segments
//   0BAG+3:12.out  0BRS+3:12.mlp    sequence parallelism: the same for backward segments (gradients)
//   0RAG+3:12.norm1 0RRS+3:12.attn  forward collectives repeated by recomputation, or before a weight gradient
//   0AA+3:12.norm2 0AA-3:12.mlp     experts: all-to-all that sends rows to their experts (dispatch) or back (combine)
//   0BAA+3:12.out  0RAA+3:12.norm2  experts: the same for gradients; repeated by recomputation
//   0OF+3:12(qkv,fc1) 0OF-3:12(qkv,fc1)  start, wait: offload these tensors to the host; their buffers are free after the wait
//   0LD+3:12(qkv,fc1) 0LD-3:12(qkv,fc1)  start, wait: reload them
//   0SF+3 0SF-3 1RF+3 1RF-3         stage boundary, forward: send x to the next stage, receive from the previous
//   1SB+3 1SB-3 0RB+3 0RB-3         backward: send the gradient to the previous stage, receive from the next
//   0DP+:12 0DP-:12        all-reduce of a layer's gradients over data-parallel replicas (a reduce-scatter if they shard
//                          the optimizer states)
//   0PG+:12 0PG-:12        all-gather of a layer's weights over data-parallel replicas (ZeRO-1 and ZeRO-2: after the optimizer;
//                          ZeRO-3: before the layer's passes)
//   0XP+:12 0XP-:12        the same as DP for the experts of a layer, over the ranks that hold the same experts
//   0XG+:12 0XG-:12        the same as PG for the experts of a layer
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
  kAllToAllStart,
  kAllToAllWait,
  kBackwardAllToAllStart,
  kBackwardAllToAllWait,
  kRecomputeAllToAllStart,
  kRecomputeAllToAllWait,
  kExpertReduceStart,
  kExpertReduceWait,
  kExpertGatherStart,
  kExpertGatherWait,
};
inline constexpr int kActionKindCount = static_cast<int>(ActionKind::kExpertGatherWait) + 1;

// Where an action runs. Compute actions run one after another on the rank's compute stream. A start hands its transfer over to
// the communication stream or the copy stream. A wait blocks the compute stream until that transfer is complete.
enum class Stream : uint8_t { kCompute, kCommunication, kCopy };
enum class Phase : uint8_t { kWhole, kStart, kWait };

// The ranks that take part in a communication action. kHost: no other rank; the action copies to or from this rank's host
// memory. kExpert: the ranks that share the experts of a layer. kExpertData: the ranks that hold the same experts (layout.h).
enum class Group : uint8_t { kNone, kTensor, kNextStage, kPreviousStage, kData, kWorld, kHost, kExpert, kExpertData };

// What an action lists in parentheses.
enum class Operands : uint8_t { kNone, kOps, kTensors };

// The part of a microbatch's training to which an action belongs. kOther: copies to and from the host, transfers between
// replicas (DP and PG), and the actions at the end of the step.
enum class StepPart : uint8_t { kForward, kBackward, kWeight, kRecompute, kOther };

// Direction of a send, a receive or a copy. kOut: the transfer reads buffers of this rank's device. kIn: it writes them.
enum class Flow : uint8_t { kNone, kOut, kIn };

// A row of the table of action kinds. A new kind needs a row in this table, one case in the engine and one golden test. Code
// that depends on properties of a kind reads these fields and does not list kinds.
struct ActionInfo {
  ActionKind kind;
  std::string_view letters;  // letters in the action's text ("F", "AR", ...), without the + or - that `phase` adds
  std::string_view words;    // words for people ("all-reduce of gradients", ...)
  Phase phase;
  Stream stream;
  Group group;
  ActionKind counterpart;  // the wait of a start, or the start of a wait; for kWhole, the kind itself
  bool has_microbatch;
  bool has_layer;
  bool has_segment;
  Operands operands;
  StepPart part;
  Collective collective;  // the collective of a segment; set only for actions of the tensor-parallel and the expert group
  Flow flow;              // set only for actions between stages and for copies

  // True for a collective that ends a segment, or repeats one: of the tensor-parallel or the expert group.
  bool of_segment() const { return collective != Collective::kNone; }
  // The pass to which the segment in `segment` belongs: kForward or kBackward.
  Pass segment_pass() const {
    return part == StepPart::kBackward || part == StepPart::kWeight ? Pass::kBackward : Pass::kForward;
  }
};
const ActionInfo& InfoOf(ActionKind kind);
// The kind that starts the collective that ends a segment of `pass`. `kind` must not be Collective::kNone.
ActionKind CollectiveStart(Collective kind, Pass pass);
// The kind that starts the repetition of a forward collective in recomputation.
ActionKind RepeatedCollectiveStart(Collective kind);

struct Action {
  ActionKind kind = ActionKind::kForward;
  Segment segment = Segment::kNone;
  int32_t stage = 0;
  int32_t microbatch = kNoMicrobatch;
  int32_t layer = kNoLayer;
  OpSet ops = 0;          // only kRecompute has ops, and always at least one
  TensorSet tensors = 0;  // only offloads and reloads have tensors, and always at least one

  bool operator==(const Action&) const = default;
};

using Program = std::vector<Action>;

LayerType LayerTypeOf(int32_t layer);
// The ops that an action computes, in the order in which its pass runs them. Only F, B, W and R actions compute ops.
std::vector<Op> OpsOf(const LayerGraph& graph, const Action& action);

std::string ActionText(const Action& action);
// Returns InvalidArgument if the text is no action; the error has the word, the character and what was expected there.
absl::StatusOr<Action> ParseAction(std::string_view text);
// Prints one action per line. The text ends with a newline.
std::string ProgramText(const Program& program);
// Parses words that are separated by white space. `#` starts a comment, which ends with the line. An error names the line.
absl::StatusOr<Program> ParseProgram(std::string_view text);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_ACTION_H_
