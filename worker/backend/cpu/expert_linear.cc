// The linear layers of experts: one product for each block of rows. Rows without a token are left out of the products.
#include <algorithm>
#include <cstring>

#include "worker/backend/cpu/cpu_ops.h"

namespace lynx::worker::cpu {
namespace {

// The rows of a product are rounded up, so that at most this many sizes occur for a room: oneDNN keeps a primitive for each
// shape. So up to 1/16 of the rows of a room may be zeros.
constexpr int64_t kSizesOfRoom = 16;

int64_t RowsOfProduct(int64_t filled, int64_t room) {
  const int64_t step = (room + kSizesOfRoom - 1) / kSizesOfRoom;
  return std::min(room, (filled + step - 1) / step * step);
}

// `weights`: the weights of the rows of one block (room). The rows with a token come first.
int64_t FilledRows(const float* weights, int64_t room) { return std::find(weights, weights + room, kNoRow) - weights; }

// Calls product(block, rows of the product) for each block that has rows, in the order of the blocks.
template <class Product>
void ForEachBlock(const ExpertShape& shape, const float* weights, const Product& product) {
  for (int64_t block = 0; block < shape.blocks; ++block) {
    const int64_t filled = FilledRows(weights + block * shape.room, shape.room);
    if (filled > 0) product(block, RowsOfProduct(filled, shape.room));
  }
}

// Sets the rows without a token to 0.
template <class T>
void ClearEmptyRows(const ExpertShape& shape, const float* weights, int64_t columns, T* rows) {
  for (int64_t block = 0; block < shape.blocks; ++block) {
    const int64_t filled = FilledRows(weights + block * shape.room, shape.room);
    T* const begin = rows + (block * shape.room + filled) * columns;
    std::memset(begin, 0, static_cast<size_t>((shape.room - filled) * columns) * sizeof(T));
  }
}

}  // namespace

template <class T>
void CpuOps<T>::ExpertForward(const ExpertShape& shape, const float* weights, const T* x, const T* w, int64_t in, int64_t out,
                              T* y) {
  ForEachBlock(shape, weights, [&](int64_t block, int64_t rows) {
    const int64_t first = block * shape.room;
    this->LinearForward(x + first * in, w + block % shape.experts * out * in, nullptr, rows, in, out, y + first * out);
  });
  ClearEmptyRows(shape, weights, out, y);
}

template <class T>
void CpuOps<T>::ExpertBackward(const ExpertShape& shape, const float* weights, const T* dy, const T* w, int64_t in, int64_t out,
                               T* dx) {
  ForEachBlock(shape, weights, [&](int64_t block, int64_t rows) {
    const int64_t first = block * shape.room;
    this->LinearBackward(dy + first * out, w + block % shape.experts * out * in, rows, in, out, dx + first * in);
  });
  ClearEmptyRows(shape, weights, in, dx);
}

template <class T>
void CpuOps<T>::ExpertWeight(const ExpertShape& shape, const float* weights, const T* x, const T* dy, int64_t in, int64_t out,
                             float* dw) {
  ForEachBlock(shape, weights, [&](int64_t block, int64_t rows) {
    const int64_t first = block * shape.room;
    this->LinearWeight(x + first * in, dy + first * out, rows, in, out, dw + block % shape.experts * out * in, nullptr);
  });
}

#define LYNX_INSTANTIATE(T)                                                                                            \
  template void CpuOps<T>::ExpertForward(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, T*);  \
  template void CpuOps<T>::ExpertBackward(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, T*); \
  template void CpuOps<T>::ExpertWeight(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
