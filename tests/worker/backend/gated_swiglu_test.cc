// Tests SwiGLU with a gate of each row, and the gates of tokens, against their formulas and finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct Shape {
  int64_t n, width;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class GatedSwiglu : public testing::TestWithParam<Shape> {
 protected:
  const int64_t n = GetParam().n, f = GetParam().width;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;

  // The block's activation, as a function of both halves and of the products whose sigmoids the gates are.
  Vector Formula(const Vector& gated, const Vector& products) const {
    Vector y = reference::Swiglu(gated, n, f);
    for (int64_t i = 0; i < n * f && !products.empty(); ++i) y[i] *= Sigmoid(products[i / f]);
    return y;
  }

  template <class T>
  void ExpectFormula(bool has_gate, double tolerance) {
    const T *gated = memory.RandomAt<T>(0, n * 2 * f, 1, 4), *dy = memory.RandomAt<T>(0, n * f, 2);
    const Vector products = has_gate ? ToDouble(memory.Random(n, 3, 2), n) : Vector();
    std::vector<float> gates;
    for (const double product : products) gates.push_back(static_cast<float>(Sigmoid(product)));
    const float* const gate = has_gate ? memory.Copy(gates) : nullptr;
    T *y = memory.OutputOf<T>(n * f), *dgated = memory.OutputOf<T>(n * 2 * f);
    float* const dproduct = has_gate ? memory.Output(n) : nullptr;
    LayerBackend<T>& ops = OpsOf<T>(*backend);
    ops.GatedSwigluForward(gated, gate, n, f, y);
    ops.GatedSwigluBackward(gated, gate, dy, n, f, dgated, dproduct);
    ASSERT_TRUE(backend->Finish().ok());

    const Vector gated_d = ToDouble(gated, n * 2 * f), dy_d = ToDouble(dy, n * f);
    ExpectClose(y, Formula(gated_d, products), tolerance, "y");
    const auto loss = [&](const Vector& both, const Vector& of_gate) { return reference::Dot(Formula(both, of_gate), dy_d); };
    if (n * f < 200) {
      ExpectClose(dgated, reference::Gradient([&](const Vector& v) { return loss(v, products); }, gated_d), tolerance,
                  "dgated");
    }
    if (has_gate && n < 100) {
      ExpectClose(dproduct, reference::Gradient([&](const Vector& v) { return loss(gated_d, v); }, products), 4e-6, "dproduct");
    }
    memory.ExpectGuardsIntact();
  }

  template <class T>
  void ExpectGates(double tolerance) {
    const int64_t h = f;
    const T *x = memory.RandomAt<T>(0, n * h, 1), *w = memory.RandomAt<T>(0, h, 2);
    const float* dproduct = memory.Random(n, 3);
    T* dx = memory.RandomAt<T>(0, n * h, 4);
    const Vector dx_before = ToDouble(dx, n * h), x_d = ToDouble(x, n * h), w_d = ToDouble(w, h);
    float *gate = memory.Output(n), *dw = memory.Constant(h, 0.5f);
    LayerBackend<T>& ops = OpsOf<T>(*backend);
    ops.TokenGateForward(x, w, n, h, gate);
    ops.TokenGateBackward(dproduct, w, n, h, dx);
    ops.TokenGateWeight(x, dproduct, n, h, dw);
    ASSERT_TRUE(backend->Finish().ok());
    Vector want_gate, want_dx = dx_before, want_dw(h, 0.5);
    for (int64_t row = 0; row < n; ++row) {
      double product = 0;
      for (int64_t i = 0; i < h; ++i) {
        product += x_d[row * h + i] * w_d[i];
        want_dx[row * h + i] += double{dproduct[row]} * w_d[i];
        want_dw[i] += double{dproduct[row]} * x_d[row * h + i];
      }
      want_gate.push_back(Sigmoid(product));
    }
    ExpectClose(gate, want_gate, 4e-6, "gate");
    ExpectClose(dx, want_dx, tolerance, "dx");
    ExpectClose(dw, want_dw, 4e-6, "dw");
    memory.ExpectGuardsIntact();
  }
};

TEST_P(GatedSwiglu, EqualsTheFormula) { ExpectFormula<float>(true, 4e-6); }
TEST_P(GatedSwiglu, WithoutGateEqualsTheFormula) { ExpectFormula<float>(false, 4e-6); }
TEST_P(GatedSwiglu, OfBfloat16IsRoundedOnce) { ExpectFormula<Bfloat16>(true, 4e-6); }
TEST_P(GatedSwiglu, GatesEqualTheFormula) { ExpectGates<float>(4e-6); }
TEST_P(GatedSwiglu, GatesOfBfloat16EqualTheFormula) { ExpectGates<Bfloat16>(4e-6); }

// The last cases have rows that fill packs of a device, rows that are longer than a block of a device, and more rows than a
// tile.
INSTANTIATE_TEST_SUITE_P(Shapes, GatedSwiglu,
                         testing::Values(Shape{1, 1}, Shape{3, 7}, Shape{5, 16}, Shape{2, 700}, Shape{150, 24}),
                         [](const auto& info) {
                           return "n" + std::to_string(info.param.n) + "width" + std::to_string(info.param.width);
                         });

// If a gate is exactly 0 or 1 in floating point, its gradient must still be finite.
TEST(TokenGates, StayBetweenZeroAndOne) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* gate = memory.Output(2);
  backend->TokenGateForward(memory.Copy({1e4f, -1e4f}), memory.Copy({1.0f}), 2, 1, gate);
  ASSERT_TRUE(backend->Finish().ok());
  EXPECT_EQ(gate[0], 1);
  EXPECT_GE(gate[1], 0);
  EXPECT_LT(gate[1], 1e-30f);
}

}  // namespace
}  // namespace lynx::worker
