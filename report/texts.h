// Words and numbers in pages, tables and plots about jobs. Pure; thread-safe.
#ifndef LYNX_REPORT_TEXTS_H_
#define LYNX_REPORT_TEXTS_H_

#include <cstdint>
#include <string>

#include "lynx/v1/jobs.pb.h"

namespace lynx {

std::string StateName(v1::JobState state);  // "RUNNING"
bool IsFinal(v1::JobState state);
std::string UtcTime(int64_t unix_ns);  // "2026-01-31 23:59:59"

// A count with three digits, such as "12.3k", "4.56M".
std::string Count(double value);

// Core wait of a step: the time in which compute threads were ready to run, but other threads had their cores. The prediction
// includes only the time that ranks of this job on shared cores take from each other.
struct CoreWaitOfStep {
  // The mean core wait of one stage: the stage in which core wait is the largest share of the step. 0: no core wait, or not
  // measured.
  int64_t ns = 0;
  double share = 0;          // the share of core wait in that stage's step
  int64_t predicted_ns = 0;  // the predicted core wait of that stage; before the first measurement, the largest of all stages
  // A share of 5% or more is worth showing, because other programs on a machine usually take less.
  bool matters() const { return share >= 0.05 || predicted_ns > 0; }
};
CoreWaitOfStep CoreWaitOf(const v1::Job& job);

// The load of experts in the newest step (Progress::expert_skew). True if the job has trained a step with experts.
bool HasExpertLoad(const v1::Job& job);
// Returns how many rows the fullest rank received, as a multiple of the even share, and which share of all rows was dropped or
// went through rounds. For example "1.37x, 2.1% dropped", "1.37x, 2.1% in 40 rounds", or only "1.37x".
std::string ExpertLoadText(const v1::Job& job);
// Returns which share of the rows of experts was dropped or went through rounds in the newest step. `rows` says which rows:
// "2.1% of all rows dropped" or "2.1% of all rows in 40 rounds" for "of all rows".
std::string WithoutRoomText(const v1::Progress& progress, const char* rows);
// Returns a skew in the form that ExpertLoadText uses, for example "1.37x".
std::string SkewText(double skew);

}  // namespace lynx

#endif  // LYNX_REPORT_TEXTS_H_
