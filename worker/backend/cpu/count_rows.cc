// Counts the rows of experts and the choices of tokens, and changes the router's biases by these counts: down for experts that
// are chosen often.
#include <algorithm>

#include "common/check.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace lynx::worker::cpu {

void CpuBackend::CountRows(const ExpertShape& shape, const float* weights, int64_t* by_expert, int64_t* total) {
  LYNX_CHECK(shape.experts >= 1 && shape.blocks <= kMaxExperts && shape.blocks % shape.experts == 0);
  for (int64_t block = 0; block < shape.blocks; ++block) {
    const float* const begin = weights + block * shape.room;
    // The rows with a token are the first ones of a block, so a binary search finds their end.
    const int64_t rows = std::partition_point(begin, begin + shape.room, [](float weight) { return weight != kNoRow; }) - begin;
    if (by_expert != nullptr) by_expert[block % shape.experts] += rows;
    *total += rows;
  }
}

void CpuBackend::CountChoices(const RouteChoice* route, int64_t choices, int64_t experts, float* loads) {
  LYNX_CHECK(experts >= 1 && experts <= kMaxExperts);
  for (int64_t i = 0; i < choices; ++i) loads[route[i].expert] += 1;
}

void CpuBackend::MoveRouterBias(const float* loads, int64_t experts, double even, float rate, float* bias) {
  for (int64_t e = 0; e < experts; ++e) {
    if (loads[e] < even) bias[e] += rate;
    if (loads[e] > even) bias[e] -= rate;
  }
}

}  // namespace lynx::worker::cpu
