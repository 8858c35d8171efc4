#include <gtest/gtest.h>

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

class Linear : public testing::TestWithParam<Shape> {
 protected:
  const int64_t n = GetParam().n, in = GetParam().in, out = GetParam().out;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* x = memory.Random(n * in, 1);
  const float* w = memory.Random(out * in, 2);
  const float* bias = memory.Random(out, 3);
  const float* dy = memory.Random(n * out, 4);
};

TEST_P(Linear, ForwardEqualsTheFormula) {
  float* y = memory.Output(n * out);
  float* y_unbiased = memory.Output(n * out);
  backend->LinearForward(x, w, bias, n, in, out, y);
  backend->LinearForward(x, w, nullptr, n, in, out, y_unbiased);
  ExpectClose(y, reference::Linear(ToDouble(x, n * in), ToDouble(w, out * in), ToDouble(bias, out), n, in, out), 2e-6, "y");
  ExpectClose(y_unbiased, reference::Linear(ToDouble(x, n * in), ToDouble(w, out * in), {}, n, in, out), 2e-6,
              "y without a bias");
  memory.ExpectGuardsIntact();
}

// A slot of a model's parameters may begin at any element.
TEST_P(Linear, ABiasMayBeginAtAnyElement) {
  const float* apart = memory.Random(out + 1, 3) + 1;
  float* y = memory.Output(n * out);
  backend->LinearForward(x, w, apart, n, in, out, y);
  ExpectClose(y, reference::Linear(ToDouble(x, n * in), ToDouble(w, out * in), ToDouble(apart, out), n, in, out), 2e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(Linear, GradientsEqualFiniteDifferences) {
  float* dx = memory.Output(n * in);
  float* dw = memory.Constant(out * in, 0.5f);
  float* dw_only = memory.Constant(out * in, 0.5f);
  float* dbias = memory.Constant(out, 0.25f);
  backend->LinearBackward(dy, w, n, in, out, dx);
  backend->LinearWeight(x, dy, n, in, out, dw, dbias);
  backend->LinearWeight(x, dy, n, in, out, dw_only, nullptr);

  const Vector x_d = ToDouble(x, n * in), w_d = ToDouble(w, out * in), bias_d = ToDouble(bias, out);
  const Vector dy_d = ToDouble(dy, n * out);
  ExpectClose(dx,
              reference::Gradient(
                  [&](const Vector& v) { return reference::Dot(reference::Linear(v, w_d, bias_d, n, in, out), dy_d); }, x_d),
              2e-6, "dx");
  Vector want = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(reference::Linear(x_d, v, bias_d, n, in, out), dy_d); }, w_d);
  for (double& value : want) value += 0.5;
  ExpectClose(dw, want, 2e-6, "dw");
  ExpectClose(dw_only, want, 2e-6, "dw without a bias");
  want = reference::Gradient([&](const Vector& v) { return reference::Dot(reference::Linear(x_d, w_d, v, n, in, out), dy_d); },
                             bias_d);
  for (double& value : want) value += 0.25;
  ExpectClose(dbias, want, 2e-6, "dbias");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear, testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 8, 24}, Shape{9, 33, 17}),
                         [](const auto& info) {
                           return "n" + std::to_string(info.param.n) + "in" + std::to_string(info.param.in) + "out" +
                                  std::to_string(info.param.out);
                         });

}  // namespace
}  // namespace lynx::worker
