// Brings tokens into the order of their experts, and back.
#include <algorithm>
#include <array>
#include <cstring>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// The number of columns of a row that are summed in one go.
constexpr int64_t kColumns = 256;

template <class T>
LYNX_SIMD void AddRow(const T* row, int64_t count, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
}

}  // namespace

template <class T>
void CpuOps<T>::TokensToRows(const RouterShape& shape, const RouteChoice* route, const T* x, T* rows, float* weights) {
  const size_t row_bytes = static_cast<size_t>(shape.h) * sizeof(T);
  std::array<int32_t, kMaxExperts> filled{};
  for (int64_t i = 0; i < shape.n * shape.top_k; ++i) {
    const RouteChoice& choice = route[i];
    if (choice.place < 0) continue;
    ++filled[static_cast<size_t>(choice.expert)];
    std::memcpy(rows + choice.place * shape.h, x + i / shape.top_k * shape.h, row_bytes);
    if (weights != nullptr) weights[choice.place] = choice.weight;
  }
  for (int64_t e = 0; e < shape.experts; ++e) {
    const int64_t begin = e * shape.room + filled[static_cast<size_t>(e)], empty = (e + 1) * shape.room - begin;
    std::memset(rows + begin * shape.h, 0, static_cast<size_t>(empty) * row_bytes);
    if (weights != nullptr) std::fill_n(weights + begin, empty, kNoRow);
  }
}

template <class T>
void CpuOps<T>::RowsToTokens(const RouterShape& shape, const RouteChoice* route, const T* rows, bool accumulate, T* x) {
  std::array<float, kColumns> sums;
  for (int64_t token = 0; token < shape.n; ++token, route += shape.top_k, x += shape.h) {
    if (accumulate && std::none_of(route, route + shape.top_k, [](const RouteChoice& c) { return c.place >= 0; })) continue;
    for (int64_t first = 0; first < shape.h; first += kColumns) {
      const int64_t columns = std::min(kColumns, shape.h - first);
      if (accumulate) {
        std::copy_n(x + first, columns, sums.begin());
      } else {
        std::fill_n(sums.begin(), columns, 0.0f);
      }
      for (int64_t c = 0; c < shape.top_k; ++c) {
        if (route[c].place >= 0) AddRow(rows + route[c].place * shape.h + first, columns, sums.data());
      }
      std::copy_n(sums.begin(), columns, x + first);
    }
  }
}

#define LYNX_INSTANTIATE(T)                                                                            \
  template void CpuOps<T>::TokensToRows(const RouterShape&, const RouteChoice*, const T*, T*, float*); \
  template void CpuOps<T>::RowsToTokens(const RouterShape&, const RouteChoice*, const T*, bool, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
