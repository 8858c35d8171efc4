// Compares the planner's choice of a layout with measured runs: "vTrain: A Simulation Framework for Evaluating Cost-Effective
// and Compute-Optimal Large Language Model Training" (Bang et al., MICRO 2024) publishes steps of Megatron-DeepSpeed on several
// nodes of 8 A100-80GB, in many layouts of the same model, devices and batch, with full recomputation and 1F1B.
#ifndef LYNX_TESTS_VALIDATION_VTRAIN_H_
#define LYNX_TESTS_VALIDATION_VTRAIN_H_

#include <string>
#include <vector>

#include "planner/cost/hardware_profile.h"
#include "tests/validation/published.h"

namespace lynx::validation {

// The runs of one model on the same devices with the same batch.
struct LayoutChoice {
  std::string name;     // such as "30 x 3072, 64 devices, batch 512"
  int32_t layouts = 0;  // number of runs
  std::string chosen;   // the layout whose estimated step is the shortest
  std::string fastest;  // the layout whose measured step is the shortest
  double regret = 0;    // measured step of the chosen layout, divided by that of the fastest, minus 1
  double error = 0;     // median of the absolute errors of the estimated steps
};

// The network of the measured nodes has 800 Gb/s for 8 devices, which is half of what the cluster file of `a100` says.
// `adapters`: HardwareProfile::adapters.
std::vector<LayoutChoice> LayoutChoices(const Table& table, const HardwareProfile& a100, int32_t adapters);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_VTRAIN_H_
