#include <gtest/gtest.h>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

constexpr float kEpsilon = 3e-3f;  // large enough to change the results

using reference::Vector;

class LayerNorm : public testing::TestWithParam<int64_t> {  // the parameter is h
 protected:
  const int64_t n = 5, h = GetParam();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* x = memory.Random(n * h, 1, 3);
  const float* gamma = memory.Random(h, 2);
  const float* beta = memory.Random(h, 3);
};

TEST_P(LayerNorm, ForwardEqualsTheFormula) {
  float* y = memory.Output(n * h);
  backend->LayerNormForward(x, gamma, beta, n, h, kEpsilon, y);
  ExpectClose(y, reference::LayerNorm(ToDouble(x, n * h), ToDouble(gamma, h), ToDouble(beta, h), n, h, kEpsilon), 2e-6, "y");
  memory.ExpectGuardsIntact();
}

TEST_P(LayerNorm, BackwardEqualsFiniteDifferences) {
  const float* dy = memory.Random(n * h, 4);
  float* dx = memory.Output(n * h);
  float* dx_accumulated = memory.Constant(n * h, 0.5f);
  float* dgamma = memory.Constant(h, 0.25f);
  float* dbeta = memory.Constant(h, 0.75f);
  float* unused_dgamma = memory.Constant(h, 0);
  float* unused_dbeta = memory.Constant(h, 0);
  backend->LayerNormBackward(x, gamma, dy, n, h, kEpsilon, false, dx, dgamma, dbeta);
  backend->LayerNormBackward(x, gamma, dy, n, h, kEpsilon, true, dx_accumulated, unused_dgamma, unused_dbeta);

  const Vector x_d = ToDouble(x, n * h), gamma_d = ToDouble(gamma, h), beta_d = ToDouble(beta, h);
  const Vector dy_d = ToDouble(dy, n * h);
  Vector want = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(reference::LayerNorm(v, gamma_d, beta_d, n, h, kEpsilon), dy_d); }, x_d);
  ExpectClose(dx, want, 1e-5, "dx");
  for (double& value : want) value += 0.5;
  ExpectClose(dx_accumulated, want, 1e-5, "dx, accumulated");
  want = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(reference::LayerNorm(x_d, v, beta_d, n, h, kEpsilon), dy_d); }, gamma_d);
  for (double& value : want) value += 0.25;
  ExpectClose(dgamma, want, 1e-5, "dgamma");
  want = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(reference::LayerNorm(x_d, gamma_d, v, n, h, kEpsilon), dy_d); }, beta_d);
  for (double& value : want) value += 0.75;
  ExpectClose(dbeta, want, 1e-5, "dbeta");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Hidden, LayerNorm, testing::Values(3, 7, 16, 33, 96));

TEST(LayerNormPrecision, SurvivesALargeMean) {
  constexpr int64_t kHidden = 64;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<float> shifted = RandomFloats(kHidden, 1);
  for (float& value : shifted) value += 1000;
  const float* x = memory.Copy(shifted);
  const float* gamma = memory.Constant(kHidden, 1);
  const float* beta = memory.Constant(kHidden, 0);
  float* y = memory.Output(kHidden);
  backend->LayerNormForward(x, gamma, beta, 1, kHidden, kEpsilon, y);
  ExpectClose(y, reference::LayerNorm(ToDouble(x, kHidden), Vector(kHidden, 1), Vector(kHidden, 0), 1, kHidden, kEpsilon), 2e-4,
              "y");
}

}  // namespace
}  // namespace lynx::worker
