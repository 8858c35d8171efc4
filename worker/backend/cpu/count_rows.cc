// Counts the rows of experts.
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

}  // namespace lynx::worker::cpu
