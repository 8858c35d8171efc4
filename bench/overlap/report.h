// The Markdown page with the results of an overlap benchmark. Pure.
#ifndef LYNX_BENCH_OVERLAP_REPORT_H_
#define LYNX_BENCH_OVERLAP_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"
#include "worker/contract/rank_report.h"

namespace lynx::bench {

// Parts of the time of a step on one rank. The rest of the step is the norm of the gradients, data and other small parts.
struct StepParts {
  Nanos forward, backward, weight, recompute, waiting, optimizer;
};

// The result of a policy over one link.
struct PolicyResult {
  std::string name;
  bool within_limit = false;
  bool overlaps = false;          // the policy is HEU, which overlaps recomputation with transfers
  bool woven = false;             // passes of several microbatches run side by side
  int32_t micro_batch = 1;        // two policies have exactly equal losses only if this is equal
  Nanos predicted;                // predicted time of a step
  StepParts parts;                // the predicted parts of rank 0's step
  Bytes planned_peak;             // the largest arena of all ranks
  Bytes measured_peak;            // measured: the largest of all ranks and steps
  std::vector<double> step_ms;    // for each round: the median of its steps; the time of a step is that of its slowest rank
  std::vector<StepReport> steps;  // the steps of rank 0 in all rounds
  double last_loss = 0;           // the loss of the last step
};

struct LinkReport {
  std::string name;              // headline of the section
  bool slow = false;             // forward collectives take at least as long as the forward ops
  int64_t bytes_per_second = 0;  // the rate that the benchmark has set
  int64_t measured_bytes_per_second = 0;
  Nanos measured_latency;
  int32_t overlap_slowdown_permille = 1000;    // time of an op during a transfer, in thousandths of its usual time
  int32_t communication_compute_permille = 0;  // share of a core that a transfer takes, in thousandths
  Bytes limit;                                 // for activations
  std::vector<PolicyResult> policies;
  std::vector<std::string> left_out;  // woven policies without a plan within the limit, with the planner's reasons
  double foreign_share = 0;           // other processes' share of the machine, the largest of all measurements and runs
};

// If other processes use a larger share of the machine's processor time, the figures mean nothing.
inline constexpr double kMaxForeignShare = 0.05;

double MedianOf(std::vector<double> values);
StepParts PartsOf(const StepReport& step);
StepParts PartsOf(const StagePlan& stage);  // as predicted
// A section of the page, with its headline.
std::string LinkSection(const LinkReport& report, int64_t tokens_per_step);

}  // namespace lynx::bench

#endif  // LYNX_BENCH_OVERLAP_REPORT_H_
