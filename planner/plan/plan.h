// A plan is the planner's result. It names ranks, but no devices. It is a value: the same request gives the same bytes and the
// same digest. Pure; thread-safe.
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

// The program that will run the plan. It limits which values the planner may choose for fields that the job leaves open.
// kLynxEngine: only values that Lynx's own engine can run (CheckEngineRuns). kAnyFramework: all values that the planner
// supports.
enum class PlanTarget : uint8_t { kLynxEngine, kAnyFramework };

struct PlanRequest {
  JobSpec spec;  // normalized and valid
  ClusterTopology cluster;
  PlanTarget target = PlanTarget::kLynxEngine;
  // True: only layouts whose microbatches have no empty places (planner/problem/batch_split.h). Plans that are exported need
  // this, because other frameworks refuse other batches.
  bool even_batches = false;
  // For callers that need no programs of the whole step: if the programs of all stages together would have more actions than
  // this, the plan has the programs of a shorter step (Plan::program_microbatches). 0: the programs are always whole.
  int64_t most_program_actions = 0;
  // Solves stages exactly, for recomputation mode `opt`. Without a solver, that mode is refused. planner/opt/exact_stage.h
  // makes a solver, and node/solver_process.h one that runs in another process. The result of a solver with a time limit
  // depends on the machine's speed, and so does a plan that uses it.
  StageSolver exact;
};

// One virtual stage.
struct SlicePlan {
  int32_t stage = 0;                       // number of the virtual stage; actions contain the same number
  int32_t first_layer = 0, end_layer = 0;  // transformer layers [first_layer, end_layer)
  StagePolicy policy;

  int32_t layers() const { return end_layer - first_layer; }
};

// One pipeline rank.
struct StagePlan {
  std::vector<SlicePlan> slices;  // the index is the chunk
  Program program;
  Bytes arena;  // planned size of the arena of each rank of the stage; the worker allocates exactly this size
  Bytes live_peak;
  StateBytes states;
  Bytes host;  // size of the host pool for offloaded tensors of each rank (MemoryPlan::host_peak)
  // Predicted times of one step:
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed, stall;
  Nanos core_wait;                  // part of the times above; 0 if no ranks of the plan share cores
  std::optional<StageProof> proof;  // set only with RecomputeMode::kOpt
};

// Nodes of one group, one after another.
struct NodeRun {
  std::string group;  // name of the group in the cluster file
  int32_t nodes = 0;
  bool operator==(const NodeRun&) const = default;
};

struct Plan {
  ModelSpec model;
  ParallelLayout layout;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // per replica and step
  // Places of the microbatches of all replicas that have no sample (planner/problem/batch_split.h).
  int32_t empty_places = 0;
  // 0: the programs are those of the step. Otherwise the programs have this smaller number of microbatches, and the step's
  // times follow from them (planner/problem/shorter_steps.h). Such a plan cannot run.
  int32_t program_microbatches = 0;
  RecomputeMode mode = RecomputeMode::kAuto;  // the mode of the policies; kAuto means HEU
  // Limit of each arena; 0 = no limit. If the memory of the devices sets the limits, this is the largest limit of all stages.
  Bytes activation_limit;
  std::vector<StagePlan> stages;  // the index is the pipeline rank
  Nanos step;                     // predicted time of one step
  bool measured_profile = false;
  // The nodes that the ranks fill, in this order. Empty if the cluster has one group, or groups without names.
  std::vector<NodeRun> nodes;
  std::string digest;  // SHA-256 of PlanText, which does not contain the digest

  // The samples of a step, over all replicas: the job's global batch.
  int32_t samples() const { return static_cast<int32_t>(int64_t{micro_batch} * microbatches * layout.dp - empty_places); }
  // The context of the rank's program.
  StageContext ContextOf(int32_t pipeline_rank) const;
};

// Returns the slices in the order of virtual stages, so the layers of the model come in order. In a bidirectional pipeline it
// returns only the slices of pipe 0, so that each layer occurs once.
std::vector<const SlicePlan*> SlicesInOrder(const Plan& plan);

// No plan fits. This is a result, not an error.
struct Infeasible {
  int32_t stage = 0;
  // The memory that the stage needs if everything is recomputed, in the best layout that was tried. It is more than `limit`. If
  // `reason` names no amount, `needed` is an estimate: the activations seem to fit, but no arena of the whole step does.
  Bytes needed;
  Bytes limit;
  std::string reason;      // "stage 0 needs 3.1 GiB more with everything recomputed: ..."
  std::string suggestion;  // the smallest change that fits: "activationMemoryPerRank: 3.4GiB" or "tp: 4" ...
};

using PlanResult = std::variant<Plan, Infeasible>;

// Returns a text such as "a100 x 1, v100 x 1, a100 x 1, v100 x 1".
std::string NodeRunsText(const std::vector<NodeRun>& runs);

// Canonical text that people can read. The digest is computed from this text.
std::string PlanText(const Plan& plan);
// Adds the digest to a complete plan. This is the last step of MakePlan. Returns Internal with stage, action and rule if the
// programs are not valid (ValidatePrograms): then the planner has a bug, and no plan is returned.
absl::StatusOr<Plan> FinishedPlan(Plan plan);
// Returns FailedPrecondition if the plan is not consistent. These things are checked: its slices are those of the layout and
// cover the model (in a bidirectional pipeline, both copies have the same slices), the digest is right, the programs are valid
// (ValidatePrograms), arenas, peaks, host memory and states are those of the memory model, and arenas are within the limit.
absl::Status CheckPlan(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_PLAN_PLAN_H_
