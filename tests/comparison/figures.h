// The figures of docs/comparison.md. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_FIGURES_H_
#define LYNX_TESTS_COMPARISON_FIGURES_H_

#include <string>
#include <vector>

#include "tests/comparison/curves.h"

namespace lynx::comparison {

// The sequence length that figures over memory show of each model: the middle one of its settings.
int32_t ShownLength(const std::string& model, const std::vector<Curve>& curves);

// Throughput over the limit for activations, a panel a model, of one cluster. SVG.
std::string MemoryFigure(const std::string& cluster, const std::vector<Curve>& curves);

// The most that Lynx is faster than Megatron-LM's full recomputation by, for each model and sequence length, a panel a
// cluster. SVG.
std::string SpeedupFigure(const std::vector<Curve>& curves);

// The highest speedup over the baseline among the points of a curve where something has to be recomputed. 0 if the
// baseline never fits.
double BestSpeedup(const Curve& curve, Baseline baseline);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_FIGURES_H_
