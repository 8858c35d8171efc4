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

// Rows of other lengths: a device holds short rows in the registers of a warp, longer ones in those of a block, and goes
// several times through the longest ones. Every length is tested with addresses that fit packs of elements, and with addresses
// that do not.
class NormRows : public testing::TestWithParam<int64_t> {  // the parameter is h
 protected:
  const int64_t h = GetParam(), n = h > 2000 ? 2 : 9;
  std::unique_ptr<Backend> backend = MakeTestBackend();

  template <class T>
  void ExpectNorms(bool has_mean, double tolerance) {
    std::vector<double> first;
    for (const int64_t shift : {0, 1, 4}) {
      TestMemory memory;
      const T *const x = memory.RandomAt<T>(shift, n * h, 1, 3), *const gamma = memory.RandomAt<T>(shift, h, 2),
                     *const beta = memory.RandomAt<T>(shift, h, 3), *const dy = memory.RandomAt<T>(shift, n * h, 4);
      T *const y = memory.RandomAt<T>(shift, n * h, 5), *const dx = memory.RandomAt<T>(shift, n * h, 6);
      float *const dgamma = memory.Constant(h, 0), *const dbeta = memory.Constant(h, 0);
      LayerBackend<T>& ops = OpsOf<T>(*backend);
      const Vector x_d = ToDouble(x, n * h), gamma_d = ToDouble(gamma, h), dy_d = ToDouble(dy, n * h);
      Vector want_dx = ToDouble(dx, n * h);
      if (has_mean) {
        ops.LayerNormForward(x, gamma, beta, n, h, kEpsilon, y);
        ops.LayerNormBackward(x, gamma, dy, n, h, kEpsilon, /*accumulate=*/true, dx, dgamma, dbeta);
        ExpectClose(y, reference::LayerNorm(x_d, gamma_d, ToDouble(beta, h), n, h, kEpsilon), tolerance, "y");
      } else {
        ops.RmsNormForward(x, gamma, n, h, kEpsilon, y);
        ops.RmsNormBackward(x, gamma, dy, n, h, kEpsilon, /*accumulate=*/true, dx, dgamma);
        ExpectClose(y, reference::RmsNorm(x_d, gamma_d, n, h, kEpsilon), tolerance, "y");
      }
      const reference::NormGradients want = reference::NormBackward(has_mean, x_d, gamma_d, dy_d, n, h, kEpsilon);
      for (size_t i = 0; i < want_dx.size(); ++i) want_dx[i] += want.dx[i];
      ExpectClose(dx, want_dx, tolerance, "dx");
      ExpectClose(dgamma, want.dgamma, tolerance, "dgamma");
      if (has_mean) ExpectClose(dbeta, want.dbeta, tolerance, "dbeta");
      memory.ExpectGuardsIntact();
      std::vector<double> all = ToDouble(y, n * h);
      const Vector of_dx = ToDouble(dx, n * h), of_dgamma = ToDouble(dgamma, h);
      all.insert(all.end(), of_dx.begin(), of_dx.end());
      all.insert(all.end(), of_dgamma.begin(), of_dgamma.end());
      if (first.empty()) first = all;
      EXPECT_TRUE(all == first) << "other bits if the tensors begin at element " << shift;
    }
  }
};

TEST_P(NormRows, OfFloatsEqualTheFormula) {
  ExpectNorms<float>(/*has_mean=*/true, 1e-5);
  ExpectNorms<float>(/*has_mean=*/false, 1e-5);
}
TEST_P(NormRows, OfBfloat16EqualTheFormula) {
  ExpectNorms<Bfloat16>(/*has_mean=*/true, 1e-5);
  ExpectNorms<Bfloat16>(/*has_mean=*/false, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Lengths, NormRows, testing::Values(768, 1020, 1023, 1024, 1025, 1032, 2049, 8191, 8192, 8193, 8200));

}  // namespace
}  // namespace lynx::worker
