// Estimates the time of one step in closed form. It takes each layer's passes from the cost model, the order of the passes from
// the schedule's timeline, and adds what follows the last pass. It is less exact than Simulate, which runs every action, but
// fast enough for pipelines of any size. It leaves out recomputation in windows: all layers are alike, and their recomputation
// is exposed. It also leaves out the exchange of norms and losses. ZeRO-2 reduces gradients with every microbatch, and ZeRO-3
// also gathers weights before each pass. If the framework overlaps reductions, these transfers are hidden behind the pass, up
// to the length of the pass.
//
// It can also estimate the steps of frameworks that differ from Lynx (FrameworkTraits), for a comparison with published
// measurements. Pure; thread-safe.
#ifndef LYNX_PLANNER_FRAMEWORKS_STEP_ESTIMATE_H_
#define LYNX_PLANNER_FRAMEWORKS_STEP_ESTIMATE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/hardware_profile.h"
#include "planner/frameworks/framework.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"

namespace lynx {

struct StepRequest {
  ModelSpec model;        // normalized values
  ParallelLayout layout;  // no value may be auto
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // number for each replica in one step
  // The layers of each piece of the model (ParallelSpec::stage_layers). Empty: as even as possible.
  std::vector<int32_t> stage_layers;
  // A mode that treats every layer alike: kNone, kFull, kFullKeepCollectives, kSelective or kBalanced.
  RecomputeMode recompute = RecomputeMode::kNone;
  std::vector<RecomputeModule> modules;  // what kSelective recomputes (RecomputeOptions::modules)
  // The share of each chunk's stored activations that is copied to the host and back. The copies run at the same time as the
  // passes.
  int32_t offload_permille = 0;
  int32_t ranks_per_node = 1;
  // The products of experts have biases, as in GPT-OSS. ModelSpec does not have them, since no engine op adds them.
  bool expert_biases = false;
  // The weights of linears whose products are narrow are kept quantised only (Megatron-Core's fp8_param_gather and
  // fp4_param_gather). Counts for memory; the updated weights are gathered in 16 bits.
  bool only_narrow_weights = false;
  FrameworkTraits traits;
};

// The times of one transformer layer for one microbatch, on the compute stream.
struct LayerEstimate {
  Nanos forward;
  Nanos backward;   // with weight gradients and recomputation
  Nanos recompute;  // part of `backward`
  // The parts of `recompute`: the ops that run again, and the collectives between them. With
  // FrameworkTraits::host_nanos_per_op, `recompute` may be longer than they are together: the rest is the host's.
  std::vector<std::pair<Op, Nanos>> repeated;
  Nanos repeated_collectives;
};

struct StepEstimate {
  Nanos step;            // the sum of the next four fields
  Nanos pipeline;        // time from the first forward to the last backward
  Nanos data_reduction;  // the exposed time; with ZeRO it includes the weight gather
  Nanos tied_embedding;  // the reduction of the embedding's gradients between the first and the last stage
  Nanos optimizer;
  LayerEstimate layer;              // with experts, if only some layers have them
  LayerEstimate dense_layer;        // of the other layers then; otherwise 0
  int64_t parameters_per_rank = 0;  // the largest number of all ranks
};

// `costs` are those of layers of this shape.
LayerEstimate EstimateLayer(const CostModel& costs, const LayerShape& shape, RecomputeMode recompute,
                            const FrameworkTraits& traits, const std::vector<RecomputeModule>& modules = {});

// Returns InvalidArgument if the schedule does not exist for the layout, if there are fewer layers than parts of the
// model, if products are narrow and the profile has no rate for them, or if the recompute mode does not treat every layer
// alike. If the parts do not divide the layers evenly, the first parts get one more layer each.
absl::StatusOr<StepEstimate> EstimateStep(const StepRequest& request, const HardwareProfile& profile);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_STEP_ESTIMATE_H_
