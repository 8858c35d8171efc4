// Tests RMSNorm, rotary positions and SwiGLU against their formulas and finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/rotary.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

constexpr float kEpsilon = 3e-3f;  // large enough to change the results

class RmsNorm : public testing::TestWithParam<int64_t> {  // the parameter is h
 protected:
  const int64_t n = 5, h = GetParam();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* x = memory.Random(n * h, 1, 3);
  const float* gamma = memory.Random(h, 2);
  const Vector x_d = ToDouble(x, n*h), gamma_d = ToDouble(gamma, h);
};

TEST_P(RmsNorm, ForwardEqualsTheFormula) {
  float* y = memory.Output(n * h);
  backend->RmsNormForward(x, gamma, n, h, kEpsilon, y);
  ExpectClose(y, reference::RmsNorm(x_d, gamma_d, n, h, kEpsilon), 2e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(RmsNorm, BackwardEqualsFiniteDifferences) {
  const float* dy = memory.Random(n * h, 4);
  float* dx = memory.Output(n * h);
  float* added_to_dx = memory.Constant(n * h, 0.5f);
  float* dgamma = memory.Constant(h, 0.25f);
  float* again = memory.Constant(h, 0);
  backend->RmsNormBackward(x, gamma, dy, n, h, kEpsilon, /*accumulate=*/false, dx, dgamma);
  backend->RmsNormBackward(x, gamma, dy, n, h, kEpsilon, /*accumulate=*/true, added_to_dx, again);
  const Vector dy_d = ToDouble(dy, n * h);
  const auto loss = [&](const Vector& x_now, const Vector& gamma_now) {
    return reference::Dot(reference::RmsNorm(x_now, gamma_now, n, h, kEpsilon), dy_d);
  };
  Vector want = reference::Gradient([&](const Vector& v) { return loss(v, gamma_d); }, x_d);
  ExpectClose(dx, want, 1e-5, "dx");
  for (double& value : want) value += 0.5;
  ExpectClose(added_to_dx, want, 1e-5, "dx, added to");
  want = reference::Gradient([&](const Vector& v) { return loss(x_d, v); }, gamma_d);
  for (double& value : want) value += 0.25;
  ExpectClose(dgamma, want, 1e-5, "dgamma");
  memory.ExpectGuardsIntact();
}

TEST_P(RmsNorm, OfZerosIsFinite) {
  float* y = memory.Output(n * h);
  backend->RmsNormForward(memory.Constant(n * h, 0), gamma, n, h, kEpsilon, y);
  for (int64_t i = 0; i < n * h; ++i) EXPECT_EQ(y[i], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Widths, RmsNorm, testing::Values(1, 7, 32, 133));

struct RopeCase {
  AttentionShape shape;
  RotaryTable rotary;
};

class Rope : public testing::TestWithParam<RopeCase> {
 protected:
  const AttentionShape shape = GetParam().shape;
  const RotaryTable rotary = GetParam().rotary;
  const int64_t count = shape.b * shape.s * shape.width();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
};

TEST_P(Rope, ForwardEqualsTheFormula) {
  float* qkv = memory.Random(count, 1);
  const Vector want = reference::Rope(shape, rotary, ToDouble(qkv, count));
  backend->RopeForward(shape, rotary, qkv);
  ExpectClose(qkv, want, 1e-6, "qkv");
  memory.ExpectGuardsIntact();
}

// A rotation is linear and orthogonal, so the input gradient is the output gradient, rotated back.
TEST_P(Rope, BackwardEqualsFiniteDifferences) {
  const Vector qkv = ToDouble(memory.Random(count, 1), count);
  float* dqkv = memory.Random(count, 2);
  const Vector dout = ToDouble(dqkv, count);
  Vector want = dout;
  backend->RopeBackward(shape, rotary, dqkv);
  if (count < 2000) {
    want = reference::Gradient([&](const Vector& v) { return reference::Dot(reference::Rope(shape, rotary, v), dout); }, qkv);
  } else {  // there are too many elements for finite differences
    backend->RopeForward(shape, rotary, dqkv);
  }
  ExpectClose(dqkv, want, 1e-6, "dqkv");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         testing::Values(RopeCase{{.b = 1, .s = 1, .a = 1, .k = 1, .d = 2}, PlainRotary(2)},
                                         RopeCase{{.b = 2, .s = 5, .a = 4, .k = 2, .d = 6}, PlainRotary(6)},
                                         RopeCase{{.b = 2, .s = 7, .a = 3, .k = 1, .d = 10}, PlainRotary(10)},
                                         RopeCase{{.b = 2, .s = 7, .a = 3, .k = 1, .d = 11},
                                                  PlainRotary(6, 5e5, 1.25)},  // rotates 6 of the 11 elements of a head
                                         RopeCase{{.b = 1, .s = 2000, .a = 1, .k = 1, .d = 64}, PlainRotary(64)},
                                         RopeCase{{.b = 2, .s = 9, .a = 2, .k = 2, .d = 258}, PlainRotary(258)},
                                         RopeCase{{.b = 8, .s = 3, .a = 6, .k = 3, .d = 72}, PlainRotary(64)},
                                         // Heads are aligned to packs, but rows are not: values have a size of their own.
                                         RopeCase{{.b = 2, .s = 3, .a = 1, .k = 1, .d = 16, .e = 9}, PlainRotary(8)},
                                         RopeCase{{.b = 2, .s = 3, .a = 2, .k = 2, .d = 32, .e = 6}, PlainRotary(16)}),
                         [](const auto& info) {
                           return "s" + std::to_string(info.param.shape.s) + "d" + std::to_string(info.param.shape.d);
                         });

class QkNorm : public testing::TestWithParam<AttentionShape> {
 protected:
  const AttentionShape shape = GetParam();
  const int64_t count = shape.b * shape.s * shape.width();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float *qkv = memory.Random(count, 1, 3), *q_gamma = memory.Random(shape.d, 2), *k_gamma = memory.Random(shape.d, 3);
  const Vector qkv_d = ToDouble(qkv, count), q_d = ToDouble(q_gamma, shape.d), k_d = ToDouble(k_gamma, shape.d);
};

TEST_P(QkNorm, ForwardEqualsTheFormula) {
  float* normed = memory.Output(count);
  backend->QkNormForward(shape, qkv, q_gamma, k_gamma, kEpsilon, normed);
  ExpectClose(normed, reference::QkNorm(shape, qkv_d, q_d, k_d, kEpsilon), 2e-6, "normed");
  memory.ExpectGuardsIntact();
}

TEST_P(QkNorm, BackwardEqualsFiniteDifferences) {
  float* dqkv = memory.Random(count, 4);
  float *dq_gamma = memory.Constant(shape.d, 0.25f), *dk_gamma = memory.Constant(shape.d, 0.5f);
  const Vector dout = ToDouble(dqkv, count);
  backend->QkNormBackward(shape, qkv, q_gamma, k_gamma, kEpsilon, dqkv, dq_gamma, dk_gamma);
  const auto loss = [&](const Vector& x, const Vector& q, const Vector& k) {
    return reference::Dot(reference::QkNorm(shape, x, q, k, kEpsilon), dout);
  };
  ExpectClose(dqkv, reference::Gradient([&](const Vector& v) { return loss(v, q_d, k_d); }, qkv_d), 1e-5, "dqkv");
  Vector want = reference::Gradient([&](const Vector& v) { return loss(qkv_d, v, k_d); }, q_d);
  for (double& value : want) value += 0.25;
  ExpectClose(dq_gamma, want, 1e-5, "dq_gamma");
  want = reference::Gradient([&](const Vector& v) { return loss(qkv_d, q_d, v); }, k_d);
  for (double& value : want) value += 0.5;
  ExpectClose(dk_gamma, want, 1e-5, "dk_gamma");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, QkNorm,
                         testing::Values(AttentionShape{.b = 1, .s = 1, .a = 1, .k = 1, .d = 2},
                                         AttentionShape{.b = 2, .s = 3, .a = 4, .k = 2, .d = 6},
                                         AttentionShape{.b = 1, .s = 4, .a = 3, .k = 1, .d = 37},
                                         // a norm over all queries of a token, which no thread holds in registers
                                         AttentionShape{.b = 1, .s = 2, .a = 1, .k = 1, .d = 300}),
                         [](const auto& info) {
                           return "s" + std::to_string(info.param.s) + "d" + std::to_string(info.param.d);
                         });

class Gated : public testing::TestWithParam<int64_t> {  // the parameter is f
 protected:
  const int64_t n = 7, f = GetParam();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* gated = memory.Random(n * 2 * f, 1, 6);
  float* silu = memory.Output(n * f);
};

TEST_P(Gated, ForwardEqualsTheFormula) {
  float* y = memory.Output(n * f);
  backend->SiluForward(gated, n, f, silu);
  backend->SwigluForward(gated, silu, n, f, y);
  ExpectClose(y, reference::Swiglu(ToDouble(gated, n * 2 * f), n, f), 1e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(Gated, BackwardEqualsFiniteDifferences) {
  const float* dy = memory.Random(n * f, 2);
  float* dgated = memory.Output(n * 2 * f);
  backend->SiluForward(gated, n, f, silu);
  backend->SwigluBackward(gated, silu, dy, n, f, dgated);
  backend->SiluBackward(gated, n, f, dgated);
  const Vector dy_d = ToDouble(dy, n * f);
  ExpectClose(dgated,
              reference::Gradient([&](const Vector& v) { return reference::Dot(reference::Swiglu(v, n, f), dy_d); },
                                  ToDouble(gated, n * 2 * f)),
              2e-6, "dgated");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Widths, Gated, testing::Values(1, 5, 16, 67));

TEST(Silu, FarOutItIsFlat) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* gated = memory.Copy({1e4f, -1e4f, 0, 0});  // (1, 2, 2)
  float* dgated = memory.Constant(4, 1);
  float* silu = memory.Output(2);
  backend->SiluForward(gated, 1, 2, silu);
  backend->SiluBackward(gated, 1, 2, dgated);
  EXPECT_EQ(silu[0], 1e4f);
  EXPECT_NEAR(silu[1], 0.0f, 1e-20);
  EXPECT_EQ(dgated[0], 1.0f);
  EXPECT_NEAR(dgated[1], 0.0f, 1e-20);
  EXPECT_EQ(dgated[2], 1.0f);  // SiluBackward changes only the half that has the gate
}

}  // namespace
}  // namespace lynx::worker
