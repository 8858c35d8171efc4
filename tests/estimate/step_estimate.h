// Time of one step in closed form: each layer's passes from the cost model, the pipeline's schedule from its timeline,
// then what follows the last pass. Coarser than Simulate, which runs every action, and fast enough for pipelines of any
// size. It leaves out recomputation in windows (all layers are alike, and their recomputation is exposed) and the
// exchange of norms and losses. ZeRO-2 reduces gradients with every microbatch, and ZeRO-3 also gathers weights before
// each pass; where the framework overlaps reductions, these are hidden behind the pass, up to the length of the pass.
//
// It also estimates steps of frameworks that run them differently from Lynx (FrameworkTraits), to compare with published
// measurements. Pure; thread-safe.
#ifndef LYNX_TESTS_ESTIMATE_STEP_ESTIMATE_H_
#define LYNX_TESTS_ESTIMATE_STEP_ESTIMATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"

namespace lynx {

// How a framework runs a step.
struct FrameworkTraits {
  // Recomputation calls a checkpointed function again as a whole, including its last op, whose result nothing reads (the
  // layer's fc2, its collective and addition; the attention core's last product). Lynx recomputes only what is read.
  bool checkpoints_functions = false;
  // A rank does not compute while it exchanges activations with its neighbours.
  bool blocking_transfers = false;
  // If x is whole on every tensor-parallel rank, each rank sends its share of x to the next stage, which gathers the
  // shares again ("scatter/gather", Narayanan et al. 2021).
  bool scattered_transfers = false;
  // Gradients are summed over the replicas while the last microbatch's backward runs.
  bool overlaps_data_reduction = true;
  RankOrder rank_order = RankOrder::kStagesInside;

  bool operator==(const FrameworkTraits&) const = default;
};
inline constexpr FrameworkTraits kLynxTraits{};
// Megatron-LM at the time of the measurements of Korthikanti et al. 2022.
inline constexpr FrameworkTraits kMegatron2022Traits{.checkpoints_functions = true,
                                                     .blocking_transfers = true,
                                                     .scattered_transfers = true,
                                                     .overlaps_data_reduction = false,
                                                     .rank_order = RankOrder::kReplicasInside};
// Megatron-LM as in Yuan et al. 2024, where transfers between stages overlap with compute.
inline constexpr FrameworkTraits kMegatron2024Traits{.checkpoints_functions = true,
                                                     .blocking_transfers = false,
                                                     .scattered_transfers = true,
                                                     .overlaps_data_reduction = false,
                                                     .rank_order = RankOrder::kReplicasInside};

struct StepRequest {
  ModelSpec model;        // normalized
  ParallelLayout layout;  // no value may be auto
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // per replica and step
  // A mode that treats every layer alike: kNone, kFull, kFullKeepCollectives, kSelective or kBalanced.
  RecomputeMode recompute = RecomputeMode::kNone;
  // Share of each chunk's stored activations that goes to the host and returns; the copies run beside the passes.
  int32_t offload_permille = 0;
  int32_t ranks_per_node = 1;
  FrameworkTraits traits;
};

// Times of one transformer layer for one microbatch on the compute stream.
struct LayerEstimate {
  Nanos forward;
  Nanos backward;   // with weight gradients and recomputation
  Nanos recompute;  // part of `backward`
};

struct StepEstimate {
  Nanos step;            // sum of the next four
  Nanos pipeline;        // from the first forward to the last backward
  Nanos data_reduction;  // exposed; includes gathering the weights with ZeRO
  Nanos tied_embedding;  // reduction of its gradients between the first and the last stage
  Nanos optimizer;
  LayerEstimate layer;
  int64_t parameters_per_rank = 0;  // largest number of any rank
};

LayerEstimate EstimateLayer(const CostModel& costs, const LayerGraph& graph, RecomputeMode recompute,
                            const FrameworkTraits& traits);

// Returns InvalidArgument if the schedule does not exist for the layout, if there are fewer layers than parts of the
// model, or if the recompute mode does not treat every layer alike. If the parts do not divide the layers evenly, the
// first parts get one more layer each.
absl::StatusOr<StepEstimate> EstimateStep(const StepRequest& request, const HardwareProfile& profile);

}  // namespace lynx

#endif  // LYNX_TESTS_ESTIMATE_STEP_ESTIMATE_H_
