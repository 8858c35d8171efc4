// Tests products of bfloat16 matrices, with the code path that this machine uses.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct Shape {
  int64_t n, in, out;
};

std::string ShapeName(const testing::TestParamInfo<Shape>& info) {
  return "n" + std::to_string(info.param.n) + "in" + std::to_string(info.param.in) + "out" + std::to_string(info.param.out);
}

class Bfloat16Linear : public testing::TestWithParam<Shape> {
 protected:
  const int64_t n = GetParam().n, in = GetParam().in, out = GetParam().out;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  LayerBackend<Bfloat16>& ops = backend->bfloat16();
  TestMemory memory;
  const Bfloat16 *x = memory.RandomBfloat16(n * in, 1), *w = memory.RandomBfloat16(out * in, 2),
                 *bias = memory.RandomBfloat16(out, 3), *dy = memory.RandomBfloat16(n * out, 4);
  const Vector x_d = ToDouble(x, n*in), w_d = ToDouble(w, out*in), bias_d = ToDouble(bias, out), dy_d = ToDouble(dy, n*out);
};

TEST_P(Bfloat16Linear, ForwardIsRoundedOnce) {
  Bfloat16 *y = memory.OutputBfloat16(n * out), *unbiased = memory.OutputBfloat16(n * out);
  float* logits = memory.Output(n * out);
  ops.LinearForward(x, w, bias, n, in, out, y);
  ops.LinearForward(x, w, nullptr, n, in, out, unbiased);
  ops.LogitsForward(x, w, n, in, out, logits);
  const Vector product = reference::Linear(x_d, w_d, {}, n, in, out);
  ExpectClose(y, reference::Linear(x_d, w_d, bias_d, n, in, out), 4e-6, "y");
  ExpectClose(unbiased, product, 4e-6, "y without a bias");
  ExpectClose(logits, product, 4e-6, "logits");  // logits are not rounded to bfloat16
  memory.ExpectGuardsIntact();
}

// A slot of a model's parameters may begin at any element.
TEST_P(Bfloat16Linear, ABiasMayBeginAtAnyElement) {
  const Bfloat16* apart = memory.RandomBfloat16(out + 1, 3) + 1;
  Bfloat16* y = memory.OutputBfloat16(n * out);
  ops.LinearForward(x, w, apart, n, in, out, y);
  ExpectClose(y, reference::Linear(x_d, w_d, ToDouble(apart, out), n, in, out), 4e-6, "y");
  memory.ExpectGuardsIntact();
}

// dx = dy w and dw = dy^T x. The fp32 tests check these by finite differences of the forward pass.
TEST_P(Bfloat16Linear, GradientsAreTheTransposedProducts) {
  Bfloat16* dx = memory.OutputBfloat16(n * in);
  float *dw = memory.Constant(out * in, 0.5f), *dbias = memory.Constant(out, 0.25f);
  float* dw_only = memory.Constant(out * in, 0.5f);
  ops.LinearBackward(dy, w, n, in, out, dx);
  ops.LinearWeight(x, dy, n, in, out, dw, dbias);
  ops.LinearWeight(x, dy, n, in, out, dw_only, nullptr);
  Vector want_dx(n * in, 0), want_dw(out * in, 0.5), want_dbias(out, 0.25);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t j = 0; j < out; ++j) {
      const double gradient = dy_d[row * out + j];
      want_dbias[j] += gradient;
      for (int64_t i = 0; i < in; ++i) {
        want_dx[row * in + i] += gradient * w_d[j * in + i];
        want_dw[j * in + i] += gradient * x_d[row * in + i];
      }
    }
  }
  ExpectClose(dx, want_dx, 4e-6, "dx");
  ExpectClose(dw, want_dw, 4e-6, "dw");
  ExpectClose(dw_only, want_dw, 4e-6, "dw without a bias");
  ExpectClose(dbias, want_dbias, 4e-6, "dbias");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Linear, GradientsEqualFiniteDifferences) {
  if (n * in * out > 10'000) return;  // only the small shapes are tested here
  Bfloat16* dx = memory.OutputBfloat16(n * in);
  float *dw = memory.Constant(out * in, 0), *dbias = memory.Constant(out, 0);
  ops.LinearBackward(dy, w, n, in, out, dx);
  ops.LinearWeight(x, dy, n, in, out, dw, dbias);
  const auto loss = [&](const Vector& x_now, const Vector& w_now, const Vector& bias_now) {
    return reference::Dot(reference::Linear(x_now, w_now, bias_now, n, in, out), dy_d);
  };
  ExpectClose(dx, reference::Gradient([&](const Vector& v) { return loss(v, w_d, bias_d); }, x_d), 4e-6, "dx");
  ExpectClose(dw, reference::Gradient([&](const Vector& v) { return loss(x_d, v, bias_d); }, w_d), 4e-6, "dw");
  ExpectClose(dbias, reference::Gradient([&](const Vector& v) { return loss(x_d, w_d, v); }, bias_d), 4e-6, "dbias");
}

TEST_P(Bfloat16Linear, RepeatsItsBits) {
  for (const int threads : {1, 2}) {
    const std::unique_ptr<Backend> other = MakeTestBackend(threads);
    std::vector<std::vector<uint16_t>> runs;
    for (int run = 0; run < 3; ++run) {
      Bfloat16* y = memory.OutputBfloat16(n * out);
      other->bfloat16().LinearForward(x, w, bias, n, in, out, y);
      runs.emplace_back();
      for (int64_t i = 0; i < n * out; ++i) runs.back().push_back(y[i].bits);
      EXPECT_EQ(runs.back(), runs.front());
      // Runs another shape in between. Its panels must not be mixed up with the panels of this shape.
      other->bfloat16().LinearBackward(y, w, n, in, out, memory.OutputBfloat16(n * in));
    }
  }
}

// Each of the last four shapes has several blocks in one of its three dimensions.
INSTANTIATE_TEST_SUITE_P(Shapes, Bfloat16Linear,
                         testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 8, 24}, Shape{9, 33, 17}, Shape{5, 1100, 30},
                                         Shape{1030, 6, 5}, Shape{7, 30, 1100}, Shape{3, 20, 2100}),
                         ShapeName);

}  // namespace
}  // namespace lynx::worker
