// RecomputePolicy says, for each layer of a stage and each recomputable tensor, whether the tensor is stored, or where it
// is recomputed. Named policies and HEU produce this type, and lowering reads only this type. Pure values.
#ifndef LYNX_PLANNER_RECOMPUTE_RECOMPUTE_POLICY_H_
#define LYNX_PLANNER_RECOMPUTE_RECOMPUTE_POLICY_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/enum_names.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// Where a tensor of layer l, microbatch k is recomputed. A tensor's inputs must be stored or be recomputed no later. The
// order below is the order in time, except that the own windows lie between the critical points of the layer's backward
// segments. Windows are numbered in the order of the pass (LayerGraph::WindowsOf). Without sequence parallelism a pass
// has two: forward attn, mlp; backward mlp, attn.
enum class Placement : uint8_t {
  kStore,
  kForward1,
  kForward2,
  kForward3,
  kForward4,  // windows of layer l of the forward that runs just before backward k
  kStall,     // before the wait for the gradient of microbatch k from the next stage
  kAbove1,
  kAbove2,
  kAbove3,
  kAbove4,  // windows of the backward of layer l+1
  kOwn1,
  kOwn2,
  kOwn3,
  kOwn4,      // windows of layer l's own backward; only for tensors that are read after them
  kCritical,  // just before the backward segment that reads it, exposed
  kOffload,   // not recomputed: kept in the host's memory between forward and backward
};
inline constexpr int kPlacementCount = 16;
template <>
inline constexpr auto kEnumNames<Placement> = EnumTable("store", "f1", "f2", "f3", "f4", "stall", "b1", "b2", "b3", "b4", "o1",
                                                        "o2", "o3", "o4", "critical", "offload");
static_assert(kEnumNames<Placement>.size() == kPlacementCount);
constexpr Placement ForwardWindow(int i) { return static_cast<Placement>(static_cast<int>(Placement::kForward1) + i); }
constexpr Placement AboveWindow(int i) { return static_cast<Placement>(static_cast<int>(Placement::kAbove1) + i); }
constexpr Placement OwnWindow(int i) { return static_cast<Placement>(static_cast<int>(Placement::kOwn1) + i); }
constexpr bool IsForwardWindow(Placement p) { return p >= Placement::kForward1 && p <= Placement::kForward4; }
constexpr bool IsAboveWindow(Placement p) { return p >= Placement::kAbove1 && p <= Placement::kAbove4; }
constexpr bool IsOwnWindow(Placement p) { return p >= Placement::kOwn1 && p <= Placement::kOwn4; }
constexpr bool IsRecomputed(Placement p) { return p != Placement::kStore && p != Placement::kOffload; }

// Indexed by position in LayerGraph::recomputable(); kStore at unused positions.
using LayerPolicy = std::array<Placement, kMaxRecomputable>;

struct StagePolicy {
  std::vector<LayerPolicy> layers;  // one per transformer layer of the stage
  // Whether a layer's input is recomputed too. Then the layer below recomputes it, together with all that this layer
  // recomputes itself, in one chain before the backward pass of the chain's top layer. Empty: for no layer. Else one
  // entry per layer; false for the first layer of a stage.
  std::vector<bool> input_recomputed;

  bool InputRecomputed(size_t layer) const { return layer < input_recomputed.size() && input_recomputed[layer]; }
  bool operator==(const StagePolicy&) const = default;
};

// The policy of a mode that treats every layer alike: none, full, full-keep-collectives, selective, balanced.
StagePolicy NamedPolicy(const LayerGraph& graph, RecomputeMode mode, int32_t layers);
// Supports uniform and block too, with N = options.layers. Uniform: groups of N layers, starting with the first, that
// keep only the first layer's input (N of 0 or 1: every layer keeps its input). Block: the first N layers are recomputed,
// the others stored. In addition, options.offload_permille of the bytes that the policy would store goes to the host.
// Whole tensors are chosen in their order, so that the share over the layers so far comes as near to this as possible
// without exceeding it. Inputs of layers stay.
StagePolicy NamedPolicy(const LayerShape& shape, RecomputeMode mode, const RecomputeOptions& options, int32_t layers);
// "store all", "full", "x1 fc1 stored; f1: ln1 qkv; critical: gelu": one line for one layer's policy.
std::string LayerPolicyText(const LayerGraph& graph, const LayerPolicy& policy);
// Groups equal layers: "layers 0-3: ...; layer 4: ...", and "; inputs recomputed: 1-3 5".
std::string StagePolicyText(const LayerGraph& graph, const StagePolicy& policy, int32_t first_layer);
// "1-3 5": the layers whose inputs are recomputed. "" if there are none.
std::string RecomputedInputsText(const StagePolicy& policy, int32_t first_layer);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_RECOMPUTE_POLICY_H_
