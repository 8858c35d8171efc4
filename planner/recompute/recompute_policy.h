// StagePolicy says, for each layer of a stage and each recomputable tensor, whether the tensor is stored, offloaded or
// recomputed, and where it is recomputed. Named policies and the solvers (HEU, OPT) produce this type. Lowering reads only this
// type. Pure values.
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

// Where a tensor of layer l and microbatch k is recomputed. The inputs of the tensor must be stored, or be recomputed no later
// than the tensor. The values below are in the order of time, but the own windows lie between the critical points of the
// layer's backward segments. Windows are numbered in the order of the pass (LayerGraph::WindowsOf). Without sequence
// parallelism a pass has two windows: in the forward pass attn and mlp, in the backward pass mlp and attn.
enum class Placement : uint8_t {
  kStore,
  kForward1,
  kForward2,
  kForward3,
  kForward4,  // windows of layer l's forward pass that runs, for another microbatch, just before backward k
  kStall,     // before the wait for the gradient of microbatch k from the next stage
  kAbove1,
  kAbove2,
  kAbove3,
  kAbove4,  // windows of the backward pass of layer l+1
  kOwn1,
  kOwn2,
  kOwn3,
  kOwn4,      // windows of layer l's own backward pass; only for tensors that are read after the window
  kCritical,  // exposed, just before the backward segment that reads the tensor
  kOffload,   // not recomputed, but kept in the host's memory between the forward and the backward pass
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

// The index is the position in LayerGraph::recomputable(). Unused positions have kStore.
using LayerPolicy = std::array<Placement, kMaxRecomputable>;
// The same policy for a layer with the graph `graph`, if `policy` is for the graph `of`: each tensor that both graphs have
// keeps its placement. A tensor that `of` lacks is stored. (ResolveRecomputation moves tensors from windows that the layer
// lacks.)
LayerPolicy PolicyIn(const LayerGraph& graph, const LayerGraph& of, const LayerPolicy& policy);

struct StagePolicy {
  // One policy per transformer layer of the stage. The positions are those of the graph StageContext::graph(), also for the
  // layers without experts of a model with experts, which PolicyIn translates.
  std::vector<LayerPolicy> layers;
  // input_recomputed[l] is true if layer l does not store its input, and layer l - 1 recomputes this input. Consecutive layers
  // of this kind form a chain: everything that they recompute is recomputed together, before the backward pass of the chain's
  // top layer. The list is either empty (false for all layers) or has one entry per layer. Its first entry is false.
  std::vector<bool> input_recomputed;

  bool InputRecomputed(size_t layer) const { return layer < input_recomputed.size() && input_recomputed[layer]; }
  bool operator==(const StagePolicy&) const = default;
};

// Returns the policy of a mode in which all layers have the same policy: none, full, full-keep-collectives, selective,
// balanced. `modules`: what selective recomputes (RecomputeOptions::modules).
StagePolicy NamedPolicy(const LayerGraph& graph, RecomputeMode mode, int32_t layers,
                        const std::vector<RecomputeModule>& modules = {});
// Like the function above, but also supports the modes uniform and block, with N = options.layers. Uniform: each group of N
// layers, counted from the first layer, stores only the input of its first layer (if N is 0 or 1, every layer stores its
// input). Block: the first N layers are recomputed, and the other layers are stored. In addition, options.offload_permille
// thousandths of the bytes that the policy would store are offloaded to the host. Whole tensors are chosen in order, so that
// the offloaded share of the layers so far is as near to this value as possible, but not above it. The inputs of layers are
// never offloaded.
StagePolicy NamedPolicy(const LayerShape& shape, RecomputeMode mode, const RecomputeOptions& options, int32_t layers);
// One layer's policy as one line, such as "store all", "full" or "x1 fc1 stored; f1: ln1 qkv; critical: gelu".
std::string LayerPolicyText(const LayerGraph& graph, const LayerPolicy& policy);
// A stage's policy as text; equal layers are grouped: "layers 0-3: ...; layer 4: ...", and "; inputs recomputed: 1-3 5".
std::string StagePolicyText(const LayerGraph& graph, const StagePolicy& policy, int32_t first_layer);
// The layers whose inputs are recomputed, such as "1-3 5". "" if there is no such layer.
std::string RecomputedInputsText(const StagePolicy& policy, int32_t first_layer);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_RECOMPUTE_POLICY_H_
