// Load: submissions at a steady rate, each asked again under its key until it is answered. Latency counts from when a
// submission was due, so that a server that stalls is not spared those that it kept from being sent.
#ifndef LYNX_BENCH_SCALE_LOAD_H_
#define LYNX_BENCH_SCALE_LOAD_H_

#include <string>
#include <vector>

#include "planner/problem/job_spec.h"

namespace lynx::scale {

struct LoadResult {
  std::vector<double> answers;   // milliseconds, sorted
  std::vector<std::string> ids;  // of the jobs, one for each key
  int asked_again = 0;
  std::vector<std::string> refused;  // why
};

// A job of so many CPU ranks on nodes of so many devices; one of few steps ends soon (fleet.h).
JobSpec SpecOf(const std::string& name, int32_t ranks, int64_t steps, int devices);

LoadResult Submit(const std::string& server, const std::string& prefix, double per_second, int count, int64_t steps);

}  // namespace lynx::scale

#endif  // LYNX_BENCH_SCALE_LOAD_H_
