// Words and numbers in pages, tables and plots about jobs. Pure; thread-safe.
#ifndef LYNX_REPORT_TEXTS_H_
#define LYNX_REPORT_TEXTS_H_

#include <cstdint>
#include <string>

#include "lynx/v1/jobs.pb.h"

namespace lynx {

std::string StateName(v1::JobState state);  // "RUNNING"
bool IsFinal(v1::JobState state);

// For example "12.3k", "4.56M": a count with three digits.
std::string Count(double value);

// Core wait of a step: how long compute threads were ready to run while others had their cores. A prediction includes only what
// ranks of this job on shared cores take from each other.
struct CoreWaitOfStep {
  int64_t ns = 0;            // mean of the stage in which it is the largest share of the step; 0: none, or not measured
  double share = 0;          // share of that stage's step
  int64_t predicted_ns = 0;  // for that stage; before the first measurement, the largest of all stages
  // From 5% on it matters: that is more than other programs on a machine usually take.
  bool matters() const { return share >= 0.05 || predicted_ns > 0; }
};
CoreWaitOfStep CoreWaitOf(const v1::Job& job);

}  // namespace lynx

#endif  // LYNX_REPORT_TEXTS_H_
