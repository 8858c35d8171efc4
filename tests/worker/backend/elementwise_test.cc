#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

constexpr DropoutKey kNoDropout{};
constexpr DropoutKey kDropout{0.25, 99, 3, 1, 12, 6};

TEST(Gelu, ForwardEqualsTheFormulaOverItsRange) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<float> inputs = {0, -0.0f, 1e-20f, -1e-20f, 30, -30, 1e4f, -1e4f};
  for (int i = -120000; i <= 120000; ++i) inputs.push_back(static_cast<float>(i) * 1e-4f);
  const auto count = static_cast<int64_t>(inputs.size());
  const float* x = memory.Copy(inputs);
  float* y = memory.Output(count);
  backend->GeluForward(x, count, y);
  const Vector want = reference::Gelu(ToDouble(x, count));
  for (int64_t i = 0; i < count; ++i) {
    // The tolerance is relative if the result is large enough. If e^(-2u) is extreme (gelu_formula.h
    // defines u), the rounding of its argument matters too.
    ASSERT_NEAR(y[i], want[i], 1e-6 * std::fabs(want[i]) + 1e-7) << "gelu(" << x[i] << ")";
  }
  memory.ExpectGuardsIntact();
}

TEST(Gelu, BackwardEqualsFiniteDifferences) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  constexpr int64_t kCount = 1001;
  const float* x = memory.Random(kCount, 1, 8);
  float* dy = memory.Random(kCount, 2);
  Vector want(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    constexpr double kStep = 1e-6;
    const Vector around = reference::Gelu({x[i] - kStep, x[i] + kStep});
    want[i] = dy[i] * (around[1] - around[0]) / (2 * kStep);
  }
  backend->GeluBackward(x, kCount, dy);
  ExpectClose(dy, want, 2e-6, "dx");
  memory.ExpectGuardsIntact();
}

TEST(Gelu, FarOutItIsFlat) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* x = memory.Copy({1e4f, -1e4f});
  float* dy = memory.Constant(2, 1);
  backend->GeluBackward(x, 2, dy);
  EXPECT_EQ(dy[0], 1.0f);
  EXPECT_NEAR(dy[1], 0.0f, 1e-20);
}

// The parameters are dropout's key and h. A device reads rows of 16 elements in packs.
class Elementwise : public testing::TestWithParam<std::tuple<DropoutKey, int64_t>> {
 protected:
  const int64_t b = 3, s = 5, h = std::get<1>(GetParam()), n = b * s;
  const DropoutKey key = std::get<0>(GetParam());
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
};

TEST_P(Elementwise, PositionForwardEqualsTheFormula) {
  float* x = memory.Random(n * h, 1);
  const float* pos = memory.Random(s * h, 2);
  const Vector want = reference::Position(ToDouble(x, n * h), ToDouble(pos, s * h), b, s, h, key);
  backend->PositionForward(x, pos, n, s, h, key);
  ExpectClose(x, want, 1e-6, "x");
  memory.ExpectGuardsIntact();
}

TEST_P(Elementwise, PositionBackwardEqualsFiniteDifferences) {
  float* dx = memory.Random(n * h, 3);
  float* dpos = memory.Constant(s * h, 0.5f);
  const Vector x_d = ToDouble(memory.Random(n * h, 1), n * h), pos_d = ToDouble(memory.Random(s * h, 2), s * h);
  const Vector dout = ToDouble(dx, n * h);
  backend->PositionBackward(dx, dpos, n, s, h, key);
  ExpectClose(dx,
              reference::Gradient(
                  [&](const Vector& v) { return reference::Dot(reference::Position(v, pos_d, b, s, h, key), dout); }, x_d),
              1e-6, "dx");
  Vector want = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(reference::Position(x_d, v, b, s, h, key), dout); }, pos_d);
  for (double& value : want) value += 0.5;
  ExpectClose(dpos, want, 1e-6, "dpos");
  memory.ExpectGuardsIntact();
}

// Ops on separate shares of the tokens must give the same bits as one op on all tokens. A share may begin inside a sample.
TEST_P(Elementwise, SharesOfTheTokensMakeTheWhole) {
  const float* pos = memory.Random(s * h, 2);
  const float* bias = memory.Random(h, 5);
  const float* input = memory.Random(n * h, 1);
  const float* residual = memory.Random(n * h, 6);
  float* whole = memory.Random(n * h, 1);
  float* sums = memory.Constant(s * h, 0);
  float* parts = memory.Random(n * h, 1);
  float* part_sums = memory.Constant(s * h, 0);
  float* whole_gradient = memory.Output(n * h);
  float* part_gradient = memory.Output(n * h);
  const auto run = [&](int64_t first, int64_t rows, float* x, float* dpos, float* gradient) {
    DropoutKey of_share = key;
    of_share.first_token = first;
    const int64_t at = first * h;
    backend->PositionForward(x + at, pos, rows, s, h, of_share);
    backend->PositionBackward(x + at, dpos, rows, s, h, of_share);
    backend->BiasDropoutAddForward(residual + at, bias, s, rows, h, of_share, x + at);
    backend->BiasDropoutAddBackward(input + at, s, rows, h, of_share, gradient + at);
  };
  run(0, n, whole, sums, whole_gradient);
  for (int64_t first = 0; first < n; first += 4) run(first, std::min<int64_t>(4, n - first), parts, part_sums, part_gradient);
  EXPECT_EQ(Vector(parts, parts + n * h), Vector(whole, whole + n * h));
  EXPECT_EQ(Vector(part_sums, part_sums + s * h), Vector(sums, sums + s * h));
  EXPECT_EQ(Vector(part_gradient, part_gradient + n * h), Vector(whole_gradient, whole_gradient + n * h));
  memory.ExpectGuardsIntact();
}

TEST_P(Elementwise, BiasDropoutAddForwardEqualsTheFormula) {
  float* y = memory.Random(n * h, 1);
  const float* residual = memory.Random(n * h, 2);
  const float* bias = memory.Random(h, 3);
  const Vector want = reference::BiasDropoutAdd(ToDouble(y, n * h), ToDouble(residual, n * h), ToDouble(bias, h), s, n, h, key);
  backend->BiasDropoutAddForward(residual, bias, s, n, h, key, y);
  ExpectClose(y, want, 1e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(Elementwise, DropoutAddWithoutABiasEqualsTheFormula) {
  float* y = memory.Random(n * h, 1);
  const float* residual = memory.Random(n * h, 2);
  const Vector want = reference::BiasDropoutAdd(ToDouble(y, n * h), ToDouble(residual, n * h), {}, s, n, h, key);
  backend->BiasDropoutAddForward(residual, nullptr, s, n, h, key, y);
  ExpectClose(y, want, 1e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(Elementwise, BiasDropoutAddGradientsEqualFiniteDifferences) {
  const Vector y = ToDouble(memory.Random(n * h, 1), n * h), residual = ToDouble(memory.Random(n * h, 2), n * h);
  const Vector bias = ToDouble(memory.Random(h, 3), h);
  const float* dout = memory.Random(n * h, 4);
  const Vector dout_d = ToDouble(dout, n * h);
  float* dy = memory.Output(n * h);
  float* dbias = memory.Constant(h, 0.5f);
  backend->BiasDropoutAddBackward(dout, s, n, h, key, dy);
  backend->BiasGradient(dy, n, h, dbias);
  const auto loss = [&](const Vector& y_now, const Vector& bias_now) {
    return reference::Dot(reference::BiasDropoutAdd(y_now, residual, bias_now, s, n, h, key), dout_d);
  };
  ExpectClose(dy, reference::Gradient([&](const Vector& v) { return loss(v, bias); }, y), 1e-6, "dy");
  Vector want = reference::Gradient([&](const Vector& v) { return loss(y, v); }, bias);
  for (double& value : want) value += 0.5;
  ExpectClose(dbias, want, 2e-6, "dbias");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Dropout, Elementwise,
                         testing::Combine(testing::Values(kNoDropout, kDropout), testing::Values<int64_t>(11, 16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).rate > 0 ? "On" : "Off") + "h" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace lynx::worker
