// Words and numbers that pages, tables and plots about jobs share. Pure; thread-safe.
#ifndef LYNX_REPORT_TEXTS_H_
#define LYNX_REPORT_TEXTS_H_

#include <cstdint>
#include <string>

#include "lynx/v1/jobs.pb.h"

namespace lynx {

std::string StateName(v1::JobState state);  // "RUNNING"
bool IsFinal(v1::JobState state);

// "12.3k", "4.56M"; a count with three digits.
std::string Count(double value);

// How long compute threads were ready to run in a step while others had their cores. A prediction counts what ranks
// of the job on the same cores take from each other, and nothing else.
struct CoreWaitOfStep {
  int64_t ns = 0;            // the mean of the stage where it is the largest share of the step; 0: none, or not measured
  double share = 0;          // of that stage's step
  int64_t predicted_ns = 0;  // of that stage; before anything is measured the largest
  // From 5% on: too much to be what a machine does beside training anyway.
  bool matters() const { return share >= 0.05 || predicted_ns > 0; }
};
CoreWaitOfStep CoreWaitOf(const v1::Job& job);

}  // namespace lynx

#endif  // LYNX_REPORT_TEXTS_H_
