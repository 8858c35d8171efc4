#include "worker/backend/cpu/bfloat16_gemm.h"

#include <algorithm>

#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// The sizes, in floats, of the panels that hold blocks of a, b and c. They fill a part of a core's outer cache. Smaller panels
// would mean that each block of a is converted to fp32 more often. A product uses only the part of the panels that it needs.
constexpr int64_t kPanelA = int64_t{1} << 20, kPanelB = int64_t{1} << 19, kPanelC = int64_t{1} << 20;
constexpr int64_t kDepth = 1024;  // the size of a block along k

LYNX_SIMD void AddRow(const Bfloat16* row, int64_t count, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
}

// One block of an operand, converted to fp32. A new conversion is made only when another block is requested.
class WideBlock {
 public:
  WideBlock(Transpose transpose, MatrixView<const Bfloat16> matrix, float* panel)
      : transpose_(transpose), matrix_(matrix), panel_(panel) {}

  // Returns a view of the block with rows [row, row + rows) and columns [column, column + columns) of op(matrix). The block is
  // op of the view.
  MatrixView<const float> At(int64_t row, int64_t rows, int64_t column, int64_t columns) {
    if (transpose_ == Transpose::kYes) {
      std::swap(row, column);
      std::swap(rows, columns);
    }
    if (row != row_ || column != column_) {
      row_ = row;
      column_ = column;
      view_ = Widened(MatrixView<const Bfloat16>{matrix_.data + row * matrix_.stride + column, matrix_.stride}, rows, columns,
                      panel_);
    }
    return view_;
  }

 private:
  const Transpose transpose_;
  const MatrixView<const Bfloat16> matrix_;
  float* const panel_;
  int64_t row_ = -1, column_ = -1;
  MatrixView<const float> view_{};
};

void AddBias(const Bfloat16* bias, int64_t rows, int64_t columns, MatrixView<float> sum) {
  if (bias == nullptr) return;
  for (int64_t row = 0; row < rows; ++row) AddRow(bias, columns, sum.data + row * sum.stride);
}

}  // namespace

Bfloat16Gemm::Bfloat16Gemm() {
  if (OneDnnGemm::IsFast()) {
    one_dnn_ = std::make_unique<OneDnnGemm>(OneDnnGemm::Operands::kBfloat16);
  } else {
    // The panels are not initialised, so the system provides no memory for parts that no product needs.
    panels_ = std::unique_ptr<float[]>(new float[kPanelA + kPanelB + kPanelC]);
  }
}

void Bfloat16Gemm::Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                            const Bfloat16* bias, MatrixView<Bfloat16> c) {
  if (one_dnn_ != nullptr) return one_dnn_->Multiply(shape, a, b, bias, c);
  MultiplyWidened(shape, a, b, bias, 0.0f, c);
}

void Bfloat16Gemm::Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                            ProductInto into, MatrixView<Bfloat16> c) {
  const Bfloat16* const no_bias = nullptr;
  if (into == ProductInto::kOverwrite) return Multiply(shape, a, b, no_bias, c);
  if (one_dnn_ != nullptr) return one_dnn_->Add(shape, a, b, c);
  MultiplyWidened(shape, a, b, no_bias, 1.0f, c);
}

void Bfloat16Gemm::Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                            ProductInto into, MatrixView<float> c) {
  if (one_dnn_ != nullptr) return one_dnn_->Multiply(shape, a, b, into, c);
  MultiplyWidened(shape, a, b, nullptr, into == ProductInto::kAdd ? 1.0f : 0.0f, c);
}

template <class C>
void Bfloat16Gemm::MultiplyWidened(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                                   const Bfloat16* bias, float beta, MatrixView<C> c) {
  if (shape.m == 0 || shape.n == 0) return;
  const int64_t depth = std::max<int64_t>(std::min(shape.k, kDepth), 1);
  const int64_t most_rows = std::min(shape.m, kPanelA / depth);
  const int64_t most_columns = std::min({shape.n, kPanelB / depth, kPanelC / most_rows});
  WideBlock wide_a(shape.a, a, panels_.get()), wide_b(shape.b, b, panels_.get() + kPanelA);
  for (int64_t row = 0; row < shape.m; row += most_rows) {
    const int64_t rows = std::min(most_rows, shape.m - row);
    for (int64_t column = 0; column < shape.n; column += most_columns) {
      const int64_t columns = std::min(most_columns, shape.n - column);
      const MatrixView<C> out{c.data + row * c.stride + column, c.stride};
      const MatrixView<float> sum = Accumulator(out, columns, panels_.get() + kPanelA + kPanelB);
      if (beta != 0) Widened(MatrixView<const C>{out.data, out.stride}, rows, columns, sum.data);
      for (int64_t k = 0; k < shape.k; k += depth) {
        const int64_t terms = std::min(depth, shape.k - k);
        Gemm(shape.a, shape.b, rows, columns, terms, 1.0f, wide_a.At(row, rows, k, terms), wide_b.At(k, terms, column, columns),
             k == 0 ? beta : 1.0f, sum);
      }
      AddBias(bias == nullptr ? nullptr : bias + column, rows, columns, sum);
      Store(sum, rows, columns, out);
    }
  }
}

}  // namespace lynx::worker::cpu
