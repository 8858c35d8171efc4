// Compares the planner with "Reducing Activation Recomputation in Large Transformer Models" (Korthikanti et al. 2022, arXiv
// 2205.05198): memory formulas, FLOP formulas, the times of one layer (table 4) and of whole iterations (table 5).
#ifndef LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
#define LYNX_TESTS_VALIDATION_KORTHIKANTI_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "planner/frameworks/step_estimate.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// A model of table 3, with the settings with which the authors trained it.
struct PublishedRun {
  std::string name;     // "22B"
  StepRequest full;     // everything is recomputed, without sequence parallelism
  StepRequest present;  // selective recomputation and sequence parallelism
  int32_t gpus = 0;
  int64_t samples = 0;  // samples in one iteration
};
// Returns all models of table 3, in the order of the table.
std::vector<PublishedRun> PublishedRuns(const Table& table);

// Compares the bytes that one layer keeps of a microbatch, for every model and technique: the paper's formula, and the memory
// model of a lowered program (planner/program/memory_model.h).
std::vector<Comparison> LayerMemory(const Table& table);
// Compares the activations of the first stage, of the embedding and of the head with the published formulas. The number of
// microbatches in flight comes from the schedule (planner/schedule/schedule_memory.h).
std::vector<Comparison> StageMemory(const Table& table);
// Compares MFU, HFU and shares, which are computed from the published times and formulas.
std::vector<Comparison> Utilization(const Table& table);

// Compares the milliseconds of one layer of the 22B model, forward and backward, for the five techniques.
std::vector<Comparison> LayerTimes(const Table& table, const HardwareProfile& profile);
// Compares seconds per iteration, for the models whose times are in the table.
std::vector<Comparison> IterationTimes(const Table& table, const HardwareProfile& profile);
// Returns seconds per iteration for all models. `published` is 0 if the table has no time.
std::vector<Comparison> IterationPredictions(const Table& table, const HardwareProfile& profile);

// The constants with which LayerTimes agrees best (least squares over forward, backward and their sum). All other values of the
// profile stay as they are. The constants are: the efficiency of large products, the efficiency of kernels over attention
// scores, and the slowdown of ops during collectives. The fit does not use iteration times.
struct LayerFit {
  std::vector<Constant> constants;
  HardwareProfile profile;
};
LayerFit FitToLayerTimes(const Table& table, const HardwareProfile& profile);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_KORTHIKANTI_H_
