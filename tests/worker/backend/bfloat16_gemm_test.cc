// Tests large products of bfloat16 matrices on the CPU, with the code path that this machine uses. Also tests the code for
// oneDNN with fp32 operands, which every machine can run. If the processor multiplies bfloat16, both tests use oneDNN.
#include <gtest/gtest.h>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/one_dnn_gemm.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct Shape {
  int64_t n, in, out;
};

std::string ShapeName(const testing::TestParamInfo<Shape>& info) {
  return "n" + std::to_string(info.param.n) + "in" + std::to_string(info.param.in) + "out" + std::to_string(info.param.out);
}

class Bfloat16Panels : public testing::TestWithParam<Shape> {};

// The matrices have more rows or columns than a panel has, and the sums go over several blocks.
TEST_P(Bfloat16Panels, BlocksMakeTheWholeProduct) {
  const int64_t n = GetParam().n, in = GetParam().in, out = GetParam().out;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const auto bfloat16 = [](const std::vector<float>& values) { return std::vector<Bfloat16>(values.begin(), values.end()); };
  const std::vector<Bfloat16> x = bfloat16(RandomFloats(n * in, 1)), w = bfloat16(RandomFloats(out * in, 2));
  std::vector<float> y(n * out);
  backend->bfloat16().LogitsForward(x.data(), w.data(), n, in, out, y.data());
  ExpectClose(y.data(), reference::Linear(ToDouble(x.data(), n * in), ToDouble(w.data(), out * in), {}, n, in, out), 4e-6, "y");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bfloat16Panels, testing::Values(Shape{3, 1500, 600}, Shape{1100, 1500, 3}), ShapeName);

class OneDnn : public testing::TestWithParam<Shape> {};

// Makes the same calls of oneDNN as products of bfloat16 matrices, but with fp32 operands, which every processor can multiply.
TEST_P(OneDnn, ProductsOfFloatsEqualTheFormula) {
  using cpu::Transpose;
  const int64_t n = GetParam().n, in = GetParam().in, out = GetParam().out;
  cpu::OneDnnGemm gemm(cpu::OneDnnGemm::Operands::kFloat);
  TestMemory memory;
  const float *x = memory.Random(n * in, 1), *w = memory.Random(out * in, 2), *bias = memory.Random(out, 3);
  const Vector x_d = ToDouble(x, n * in), w_d = ToDouble(w, out * in), bias_d = ToDouble(bias, out);
  const cpu::MatrixView<const float> x_view{x, in}, w_view{w, in};
  for (int run = 0; run < 2; ++run) {  // the second run uses the primitives of the first
    float *y = memory.Output(n * out), *unbiased = memory.Output(n * out), *sum = memory.Constant(n * out, 0.5f);
    const cpu::ProductShape forward{Transpose::kNo, Transpose::kYes, n, out, in};
    gemm.Multiply<float>(forward, x_view, w_view, bias, {y, out});
    gemm.Multiply<float>(forward, x_view, w_view, cpu::ProductInto::kOverwrite, {unbiased, out});
    gemm.Multiply<float>(forward, x_view, w_view, cpu::ProductInto::kAdd, {sum, out});
    Vector want = reference::Linear(x_d, w_d, {}, n, in, out);
    ExpectClose(y, reference::Linear(x_d, w_d, bias_d, n, in, out), 4e-6, "y");
    ExpectClose(unbiased, want, 4e-6, "y without a bias");
    for (double& value : want) value += 0.5;
    ExpectClose(sum, want, 4e-6, "y added to");

    float *dx = memory.Output(n * in), *dw = memory.Constant(out * in, 0.5f);
    gemm.Multiply<float>({Transpose::kNo, Transpose::kNo, n, in, out}, {y, out}, w_view, nullptr, {dx, in});
    gemm.Multiply<float>({Transpose::kYes, Transpose::kNo, out, in, n}, {y, out}, x_view, cpu::ProductInto::kAdd, {dw, in});
    Vector want_dx(n * in, 0), want_dw(out * in, 0.5);
    for (int64_t i = 0; i < n * out * in; ++i) {
      const int64_t row = i / (out * in), j = i / in % out, column = i % in;
      want_dx[row * in + column] += y[row * out + j] * w_d[j * in + column];
      want_dw[j * in + column] += y[row * out + j] * x_d[row * in + column];
    }
    ExpectClose(dx, want_dx, 1e-5, "dx");
    ExpectClose(dw, want_dw, 1e-5, "dw");
  }
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, OneDnn, testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 8, 24}, Shape{9, 33, 17}),
                         ShapeName);

}  // namespace
}  // namespace lynx::worker
