// What an overlap benchmark found, as a Markdown page. Pure.
#ifndef LYNX_BENCH_OVERLAP_REPORT_H_
#define LYNX_BENCH_OVERLAP_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/problem/job_spec.h"
#include "worker/contract/rank_report.h"

namespace lynx::bench {

// A policy over one link.
struct PolicyResult {
  std::string name;
  bool within_limit = false;
  bool overlaps = false;
  Nanos predicted;                // step
  Bytes planned_peak;             // arena, the largest of all ranks
  Bytes measured_peak;            // the largest of all ranks and steps
  std::vector<double> step_ms;    // of each round: the median over its steps, of which each counts its slowest rank
  std::vector<StepReport> steps;  // of rank 0, of all rounds
  double last_loss = 0;           // of the last step
};

struct LinkReport {
  std::string name;              // "PCIe-like"
  int64_t bytes_per_second = 0;  // as shaped
  int64_t measured_bytes_per_second = 0;
  Nanos measured_latency;
  int32_t overlap_slowdown_permille = 1000;    // of ops beside a transfer, as the agent measured it
  int32_t communication_compute_permille = 0;  // of a core, what a transfer takes of it
  Bytes limit;                                 // for activations
  std::vector<PolicyResult> policies;
  double foreign_share = 0;  // the worst of all runs
};

// More foreign load than this, and figures say nothing.
inline constexpr double kMaxForeignShare = 0.05;

double MedianOf(std::vector<double> values);
// A section of the page; begins with its headline.
std::string LinkSection(const LinkReport& report, int64_t tokens_per_step);

}  // namespace lynx::bench

#endif  // LYNX_BENCH_OVERLAP_REPORT_H_
