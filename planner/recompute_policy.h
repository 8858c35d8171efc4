// RecomputePolicy: for each layer of a stage and each recomputable tensor, whether it is stored, or where it is
// recomputed. Named policies and HEU all produce this type, and lowering reads nothing else. Pure values.
#ifndef LYNX_PLANNER_RECOMPUTE_POLICY_H_
#define LYNX_PLANNER_RECOMPUTE_POLICY_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/job_spec.h"
#include "planner/layer_graph.h"

namespace lynx {

// Where a tensor of layer l, microbatch k is made again. A tensor's inputs must be stored or recomputed no later:
// the order below is the order in time.
enum class Placement : uint8_t {
  kStore,
  kForwardAttn,   // f1: the collective after the attn segment of layer l of the forward that runs just before backward k
  kForwardMlp,    // f2: the one after its mlp segment
  kStall,         // before the wait for the gradient of microbatch k from the next stage
  kAboveMlp,      // b1: the collective after the mlp segment of the backward of layer l+1
  kAboveAttn,     // b2: the one after its attn segment
  kOwnMlp,        // b3: the one after the mlp segment of layer l's own backward; only for what that segment's B and W
                  // do not read
  kCritical,      // c: just before the backward segment that reads it, exposed
};
inline constexpr int kPlacementCount = 8;
std::string_view PlacementName(Placement placement);  // "store", "f1", "f2", "stall", "b1", "b2", "b3", "critical"

// Indexed by position in RecomputableTensors().
using LayerPolicy = std::array<Placement, 8>;

struct StagePolicy {
  std::vector<LayerPolicy> layers;  // one per transformer layer of the stage
  bool operator==(const StagePolicy&) const = default;
};

// One of the named modes but kAuto, for every layer alike.
StagePolicy NamedPolicy(RecomputeMode mode, int32_t layers);
// "store all", "full", "x1 fc1 stored; f1: ln1 qkv; critical: gelu": one line for one layer's policy.
std::string LayerPolicyText(const LayerPolicy& policy);
// Groups equal layers: "layers 0-3: ...; layer 4: ...".
std::string StagePolicyText(const StagePolicy& policy, int32_t first_layer);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_POLICY_H_
