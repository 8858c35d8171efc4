// Draws the figures of docs/comparison.md. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_FIGURES_H_
#define LYNX_TESTS_COMPARISON_FIGURES_H_

#include <string>
#include <vector>

#include "tests/comparison/curves.h"

namespace lynx::comparison {

// Returns the sequence length for which MemoryFigure shows the model: the middle one of the model's settings.
int32_t ShownLength(const std::string& model, const std::vector<Curve>& curves);

// Draws throughput over the limit for activations, for one cluster, with one panel for each model. Returns SVG.
std::string MemoryFigure(const std::string& cluster, const std::vector<Curve>& curves);

// Draws the largest speedup of Lynx over Megatron-LM's full recomputation, for each model and sequence length, with one panel
// for each cluster. Returns SVG.
std::string SpeedupFigure(const std::vector<Curve>& curves);

// Returns the highest speedup over the baseline. It looks only at points of the curve at which something has to be recomputed.
// Returns 0 if the baseline never fits.
double BestSpeedup(const Curve& curve, Baseline baseline);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_FIGURES_H_
