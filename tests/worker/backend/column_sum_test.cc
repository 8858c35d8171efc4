// Tests sums of columns: the gradients of biases and of norms' weights. Some have few rows, and some so many that a device adds
// them in parts.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct Matrix {
  int64_t rows, columns;
};

class ColumnSums : public testing::TestWithParam<Matrix> {
 protected:
  const int64_t n = GetParam().rows, h = GetParam().columns;
  std::unique_ptr<Backend> backend = MakeTestBackend();

  // Expects that the gradient of a bias equals the sums, with the same bits at every address.
  template <class T>
  void ExpectSums() {
    std::vector<float> first;
    for (const int64_t shift : {0, 1, 2, 4}) {
      TestMemory memory;
      const T* const dy = memory.RandomAt<T>(shift, n * h, 1);
      float* const dbias = memory.Constant(h + 3, 0.5f);
      OpsOf<T>(*backend).BiasGradient(dy, n, h, dbias);
      Vector want(h, 0.5);
      for (int64_t i = 0; i < n * h; ++i) want[i % h] += dy[i];
      ExpectClose(dbias, want, 1e-5, "dbias");
      const std::vector<float> sums(dbias, dbias + h + 3);
      if (first.empty()) first = sums;
      EXPECT_EQ(std::memcmp(sums.data(), first.data(), first.size() * sizeof(float)), 0) << "begins at element " << shift;
      for (int64_t i = h; i < h + 3; ++i) EXPECT_EQ(dbias[i], 0.5f) << "after the last column";
      memory.ExpectGuardsIntact();
    }
  }
};

TEST_P(ColumnSums, OfFloats) { ExpectSums<float>(); }
TEST_P(ColumnSums, OfBfloat16) { ExpectSums<Bfloat16>(); }

// The widths need one block or several, whole ones or not, and from 4 to 32 threads for a row.
INSTANTIATE_TEST_SUITE_P(Shapes, ColumnSums,
                         testing::Values(Matrix{1, 1}, Matrix{1, 300}, Matrix{7, 5}, Matrix{63, 64}, Matrix{200, 264},
                                         Matrix{1100, 7}, Matrix{1030, 40}, Matrix{1500, 128}, Matrix{3001, 3},
                                         Matrix{2100, 16}, Matrix{300, 520}, Matrix{129, 1037}),
                         [](const auto& info) {
                           return "rows" + std::to_string(info.param.rows) + "columns" + std::to_string(info.param.columns);
                         });

// While a device sums more rows than one block adds, it keeps the statistics of rows. The sums must not overwrite them.
template <class T>
void ExpectNormsWeights(Backend& backend, int64_t n, int64_t h) {
  TestMemory memory;
  LayerBackend<T>& ops = OpsOf<T>(backend);
  const T *const x = memory.RandomAt<T>(0, n * h, 1), *const gamma = memory.RandomAt<T>(0, h, 2),
                 *const dy = memory.RandomAt<T>(0, n * h, 3);
  T *const dx = memory.RandomAt<T>(0, n * h, 4), *const dx_rms = memory.RandomAt<T>(0, n * h, 4);
  float *const dgamma = memory.Constant(h, 0), *const dbeta = memory.Constant(h, 0), *const dgamma_rms = memory.Constant(h, 0);
  ops.LayerNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/false, dx, dgamma, dbeta);
  ops.RmsNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/false, dx_rms, dgamma_rms);
  const auto want = [&](bool has_mean) {
    return reference::NormBackward(has_mean, ToDouble(x, n * h), ToDouble(gamma, h), ToDouble(dy, n * h), n, h);
  };
  const reference::NormGradients layer = want(true), rms = want(false);
  ExpectClose(dx, layer.dx, 1e-5, "dx");
  ExpectClose(dgamma, layer.dgamma, 1e-5, "dgamma");
  ExpectClose(dbeta, layer.dbeta, 1e-5, "dbeta");
  ExpectClose(dx_rms, rms.dx, 1e-5, "dx of the RMS norm");
  ExpectClose(dgamma_rms, rms.dgamma, 1e-5, "dgamma of the RMS norm");
  memory.ExpectGuardsIntact();
}

TEST(NormsOfManyRows, WeightGradientsEqualTheFormula) {
  const std::unique_ptr<Backend> backend = MakeTestBackend();
  for (const Matrix& shape : {Matrix{1100, 48}, Matrix{1100, 33}, Matrix{150, 1040}}) {
    ExpectNormsWeights<float>(*backend, shape.rows, shape.columns);
    ExpectNormsWeights<Bfloat16>(*backend, shape.rows, shape.columns);
  }
}

// Takes the heads from `first` to `first + each` of every token.
Vector HeadsOf(const Vector& qkv, const AttentionShape& shape, int64_t first, int64_t each) {
  Vector heads;
  for (int64_t token = 0; token < shape.b * shape.s; ++token) {
    const auto begin = qkv.begin() + token * shape.width() + first * shape.d;
    heads.insert(heads.end(), begin, begin + each * shape.d);
  }
  return heads;
}

template <class T>
void ExpectHeadNormsWeights(Backend& backend, const AttentionShape& shape) {
  TestMemory memory;
  const int64_t tokens = shape.b * shape.s, count = tokens * shape.width();
  const T *const qkv = memory.RandomAt<T>(0, count, 1), *const q_gamma = memory.RandomAt<T>(0, shape.d, 2),
                 *const k_gamma = memory.RandomAt<T>(0, shape.d, 3);
  T* const dqkv = memory.RandomAt<T>(0, count, 4);
  const Vector x = ToDouble(qkv, count), dy = ToDouble(dqkv, count);
  float *const dq_gamma = memory.Constant(shape.d, 0), *const dk_gamma = memory.Constant(shape.d, 0);
  OpsOf<T>(backend).QkNormBackward(shape, qkv, q_gamma, k_gamma, 1e-5f, dqkv, dq_gamma, dk_gamma);
  const Vector dx = ToDouble(dqkv, count);
  const auto expect = [&](int64_t first, int64_t each, const T* gamma, const float* dgamma) {
    const reference::NormGradients want =
        reference::NormBackward(/*has_mean=*/false, HeadsOf(x, shape, first, each), ToDouble(gamma, shape.d),
                                HeadsOf(dy, shape, first, each), tokens * each, shape.d);
    ExpectClose(dgamma, want.dgamma, 1e-5, "dgamma");
    const Vector got = HeadsOf(dx, shape, first, each);
    const double tolerance = std::is_same_v<T, float> ? 1e-5 : kBfloat16Rounding;
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.dx[i], tolerance * (1 + std::abs(want.dx[i]))) << i;
  };
  expect(0, shape.a, q_gamma, dq_gamma);
  expect(shape.a, shape.k, k_gamma, dk_gamma);
  EXPECT_EQ(HeadsOf(dx, shape, shape.a + shape.k, shape.k), HeadsOf(dy, shape, shape.a + shape.k, shape.k));
  memory.ExpectGuardsIntact();
}

TEST(NormsOfManyHeads, WeightGradientsEqualTheFormula) {
  const std::unique_ptr<Backend> backend = MakeTestBackend();
  for (const AttentionShape& shape :
       {AttentionShape{.b = 2, .s = 130, .a = 4, .k = 2, .d = 32}, AttentionShape{.b = 1, .s = 201, .a = 3, .k = 3, .d = 13},
        AttentionShape{.b = 1, .s = 50, .a = 2, .k = 1, .d = 128}, AttentionShape{.b = 1, .s = 20, .a = 2, .k = 1, .d = 264}}) {
    ExpectHeadNormsWeights<float>(*backend, shape);
    ExpectHeadNormsWeights<Bfloat16>(*backend, shape);
  }
}

}  // namespace
}  // namespace lynx::worker
