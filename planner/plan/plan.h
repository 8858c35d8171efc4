// Plans: the planner's answer. A plan names ranks, never devices; it is a value: the same request gives the same
// bytes and the same digest. Pure; thread-safe.
#ifndef LYNX_PLANNER_PLAN_PLAN_H_
#define LYNX_PLANNER_PLAN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

// What will run the plan. kLynxEngine: what the job leaves open is chosen among what Lynx's own engine can run
// (CheckEngineRuns). kAnyFramework: among everything that the planner knows.
enum class PlanTarget : uint8_t { kLynxEngine, kAnyFramework };

struct PlanRequest {
  JobSpec spec;  // normalized and valid
  ClusterTopology cluster;
  PlanTarget target = PlanTarget::kLynxEngine;
  // Solves stages where recompute is opt; without it that mode is refused. planner/opt/exact_stage.h makes one, and
  // node/solver_process.h one that does so in another process. What it proves in its time limit depends on the
  // machine, and so then does the plan.
  StageSolver exact;
};

// One virtual stage.
struct SlicePlan {
  int32_t stage = 0;                       // as in an action
  int32_t first_layer = 0, end_layer = 0;  // transformer layers
  StagePolicy policy;

  int32_t layers() const { return end_layer - first_layer; }
};

// One pipeline rank.
struct StagePlan {
  std::vector<SlicePlan> slices;  // by chunk
  Program program;
  Bytes arena;  // planned activation peak of each rank of the stage = allocated size
  Bytes live_peak;
  StateBytes states;
  Bytes host;  // host memory of each rank, for what is offloaded: the most at any time
  // Predicted, per step:
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed, stall;
  Nanos core_wait;                  // within the times above; 0 unless ranks of the plan share cores
  std::optional<StageProof> proof;  // under RecomputeMode::kOpt
};

struct Plan {
  ModelSpec model;
  ParallelLayout layout;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;                   // per replica and step
  RecomputeMode mode = RecomputeMode::kAuto;  // what the policies come from; auto: HEU
  Bytes activation_limit;         // of each arena; 0 = none. Where devices' memory sets it: the largest of the stages' limits
  std::vector<StagePlan> stages;  // by pipeline rank
  Nanos step;                     // predicted
  bool measured_profile = false;
  std::string digest;  // SHA-256 of PlanText without this field

  StageContext ContextOf(int32_t pipeline_rank) const;
};

// The slices by virtual stage: all layers of the model in order; in a bidirectional pipeline once, those of pipe 0.
std::vector<const SlicePlan*> SlicesInOrder(const Plan& plan);

// Infeasible is a result, not an error.
struct Infeasible {
  int32_t stage = 0;
  Bytes needed;  // with everything recomputed, in the best layout tried; above `limit`. An estimate where `reason`
                 // names no amount: there activations fit, but no arena of the whole step
  Bytes limit;
  std::string reason;      // "stage 0 needs 3.1 GiB more with everything recomputed: ..."
  std::string suggestion;  // the smallest change that fits: "activationMemoryPerRank: 3.4GiB" or "tp: 4" ...
};

using PlanResult = std::variant<Plan, Infeasible>;

// Canonical text: the digest's input. Human-readable.
std::string PlanText(const Plan& plan);
// The plan with its digest: what MakePlan ends with. Internal, naming stage, action and rule, if the programs are not
// valid (ValidatePrograms): the planner is mistaken then, and the plan is not handed out.
absl::StatusOr<Plan> FinishedPlan(Plan plan);
// FailedPrecondition unless the plan is whole: slices that are the layout's and cover the model (in a bidirectional
// pipeline both its copies alike), its digest, programs that are valid
// (ValidatePrograms), arenas, peaks and states that are what the memory model gives, and arenas within the limit.
absl::Status CheckPlan(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_PLAN_PLAN_H_
