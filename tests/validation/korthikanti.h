// "Reducing Activation Recomputation in Large Transformer Models" (Korthikanti et al. 2022, arXiv 2205.05198): memory
// formulas, FLOP formulas, the times of one layer (table 4) and of whole iterations (table 5), beside the planner's.
#ifndef LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
#define LYNX_TESTS_VALIDATION_KORTHIKANTI_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "planner/search/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// A model of table 3 as it was trained.
struct PublishedRun {
  std::string name;     // "22B"
  StepRequest full;     // everything recomputed, no sequence parallelism
  StepRequest present;  // selective recomputation and sequence parallelism
  int32_t gpus = 0;
  int64_t samples = 0;  // of an iteration
};
// All of table 3, in its order.
std::vector<PublishedRun> PublishedRuns(const Table& table);

// Bytes that one layer keeps of a microbatch, for every model and technique: the paper's formula beside the fold over
// a lowered program (planner/program/memory_model.h).
std::vector<Comparison> LayerMemory(const Table& table);
// Activations of the first stage and what stands beside them at its ends: likewise, with the microbatches that the
// schedule has in flight (planner/schedule/schedule_memory.h).
std::vector<Comparison> StageMemory(const Table& table);
// MFU, HFU and shares from the published times and formulas.
std::vector<Comparison> Utilization(const Table& table);

// Milliseconds of one layer of the 22B model, forward and backward, for the five techniques.
std::vector<Comparison> LayerTimes(const Table& table, const HardwareProfile& profile);
// Seconds of an iteration; of the models whose times the table has.
std::vector<Comparison> IterationTimes(const Table& table, const HardwareProfile& profile);
// The same for all models: `published` is 0 where the table has no time.
std::vector<Comparison> IterationPredictions(const Table& table, const HardwareProfile& profile);

// The constants that make LayerTimes agree best (least squares over forward, backward and their sum), all else in the
// profile as it is: the efficiency of large products, that of kernels over attention scores, and how much longer ops
// take beside collectives. Iteration times are not looked at.
struct LayerFit {
  std::vector<Constant> constants;
  HardwareProfile profile;
};
LayerFit FitToLayerTimes(const Table& table, const HardwareProfile& profile);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
