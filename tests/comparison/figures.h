// The figures of docs/comparison.md. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_FIGURES_H_
#define LYNX_TESTS_COMPARISON_FIGURES_H_

#include <string>
#include <vector>

#include "tests/comparison/curves.h"

namespace lynx::comparison {

// The sequence length that figures over memory show for the model: the middle one of its settings.
int32_t ShownLength(const std::string& model, const std::vector<Curve>& curves);

// Throughput over the limit for activations, for one cluster, with one panel per model. SVG.
std::string MemoryFigure(const std::string& cluster, const std::vector<Curve>& curves);

// The largest speedup of Lynx over Megatron-LM's full recomputation, for each model and sequence length, with one panel
// per cluster. SVG.
std::string SpeedupFigure(const std::vector<Curve>& curves);

// The highest speedup over the baseline among the points of a curve where something has to be recomputed. 0 if the
// baseline never fits.
double BestSpeedup(const Curve& curve, Baseline baseline);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_FIGURES_H_
