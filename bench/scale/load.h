// Load: submissions at a steady rate. Each is repeated with its idempotency key until the server accepts or refuses it.
// Latency counts from the time at which a submission was due, so that it includes the time by which a stalled server delays
// later submissions.
#ifndef LYNX_BENCH_SCALE_LOAD_H_
#define LYNX_BENCH_SCALE_LOAD_H_

#include <string>
#include <vector>

#include "planner/problem/job_spec.h"

namespace lynx::scale {

struct LoadResult {
  std::vector<double> answers;   // milliseconds from due to accepted, sorted
  std::vector<std::string> ids;  // ids of the jobs, one for each key
  int asked_again = 0;
  std::vector<std::string> refused;  // the reasons of refused submissions
};

// A job of `ranks` CPU ranks on nodes that have `devices` devices each. A job of at most kShortSteps steps ends soon (fleet.h).
JobSpec SpecOf(const std::string& name, int32_t ranks, int64_t steps, int devices);

LoadResult Submit(const std::string& server, const std::string& prefix, double per_second, int count, int64_t steps);

}  // namespace lynx::scale

#endif  // LYNX_BENCH_SCALE_LOAD_H_
