// Audits a run of another framework: what its ranks hold, whether that fits into memory, how long a step takes and why, and
// what would be faster. Steps and memory of the framework are closed-form estimates (planner/frameworks). Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_AUDIT_H_
#define LYNX_CLI_FRAMEWORKS_AUDIT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/run_log.h"
#include "cli/frameworks/run_settings.h"
#include "planner/frameworks/framework_plan.h"
#include "planner/plan/plan.h"

namespace lynx::cli {

// Where the time of a step goes. The parts add up to the step.
struct StepParts {
  Nanos layers;     // passes of the layers, on the rank with the most layers; without recomputation
  Nanos recompute;  // recomputation in these passes
  Nanos rest;       // the rest of the pipeline: embedding, loss, transfers, and waiting for other stages
  Nanos reduction;  // exposed time of gradient sums over replicas and of weight gathers
  Nanos tied;       // the reduction of the tied embedding's gradients
  Nanos optimizer;
  Nanos sum() const { return layers + recompute + rest + reduction + tied + optimizer; }
};

struct RunAudit {
  ImportedRun run;
  FrameworkPlan plan;  // the plan that the run has now
  StepParts parts;
  // Set if the run recomputes only some layers. Step and memory are then interpolated between storing everything and
  // recomputing every layer. The share of recomputed layers, in thousandths; -1: nothing is interpolated.
  int32_t recomputed_permille = -1;
  std::optional<RunLog> log;
  // The fastest plan of the same framework for the same model, batch and devices, if there is one.
  std::optional<FrameworkPlan> best;
  std::string no_best;  // why there is no such plan
  // The fastest plan of Lynx's own engine, from its planner. It recomputes in windows and simulates the whole step.
  std::optional<Plan> lynx;
  std::string no_lynx;  // why there is no plan, or why the engine cannot run it
};

// `cluster` has one group of nodes. Its number of nodes is changed to the number that the run's devices fill. InvalidArgument:
// the cluster has several groups, or the layout of the run cannot be estimated.
absl::StatusOr<RunAudit> AuditOf(ImportedRun run, ClusterTopology cluster, std::optional<RunLog> log);

// Returns the job of the run, with all fields left open that a planner may choose.
JobSpec OpenJob(const ImportedRun& run);
// The layout, micro-batch and recomputation of a plan as a request, for SettingsOf.
StepRequest RequestOf(const Plan& plan);

// The audit for people, and as JSON.
std::string AuditText(const RunAudit& audit, const std::string& file);
std::string AuditJson(const RunAudit& audit);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_AUDIT_H_
