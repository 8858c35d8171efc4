// "Reducing Activation Recomputation in Large Transformer Models" (Korthikanti et al. 2022, arXiv 2205.05198), compared
// with the planner: memory formulas, FLOP formulas, the times of one layer (table 4) and of whole iterations (table 5).
#ifndef LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
#define LYNX_TESTS_VALIDATION_KORTHIKANTI_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "tests/estimate/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// A model of table 3, with the settings with which it was trained.
struct PublishedRun {
  std::string name;     // "22B"
  StepRequest full;     // everything recomputed, no sequence parallelism
  StepRequest present;  // selective recomputation and sequence parallelism
  int32_t gpus = 0;
  int64_t samples = 0;  // samples in one iteration
};
// All models of table 3, in its order.
std::vector<PublishedRun> PublishedRuns(const Table& table);

// The bytes that one layer keeps of a microbatch, for every model and technique: the paper's formula, compared with the
// fold over a lowered program (planner/program/memory_model.h).
std::vector<Comparison> LayerMemory(const Table& table);
// Compares the activations of the first stage, and of the embedding and the head at its ends, with the published formulas.
// The number of microbatches in flight is that of the schedule (planner/schedule/schedule_memory.h).
std::vector<Comparison> StageMemory(const Table& table);
// MFU, HFU and shares, computed from the published times and formulas.
std::vector<Comparison> Utilization(const Table& table);

// Milliseconds of one layer of the 22B model, forward and backward, for the five techniques.
std::vector<Comparison> LayerTimes(const Table& table, const HardwareProfile& profile);
// Seconds per iteration, for the models whose times are in the table.
std::vector<Comparison> IterationTimes(const Table& table, const HardwareProfile& profile);
// Seconds per iteration, for all models; `published` is 0 if the table has no time.
std::vector<Comparison> IterationPredictions(const Table& table, const HardwareProfile& profile);

// The constants with which LayerTimes agrees best (least squares over forward, backward and their sum), while the rest
// of the profile stays as it is: the efficiency of large products, the efficiency of kernels over attention scores, and
// the slowdown of ops beside collectives. The fit does not use iteration times.
struct LayerFit {
  std::vector<Constant> constants;
  HardwareProfile profile;
};
LayerFit FitToLayerTimes(const Table& table, const HardwareProfile& profile);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
