// Tests the ops of latent attention against their formulas and finite differences, on fp32 and on bfloat16.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

constexpr float kEpsilon = 3e-3f;  // large enough to change the results

// The ops of one shape, on elements of type T. The tensors that an op writes begin as NaN.
template <class T>
class LatentOps {
 public:
  explicit LatentOps(const LatentShape& s) : shape(s) {}

  void ExpectNorms();
  void ExpectHeads();
  void ExpectHeadsBackward();

 private:
  // Errors of fp32 arithmetic, and of sums of values that were rounded before.
  static constexpr double kOfSums = 5e-6, kOfGradients = 2e-5;

  const T* Random(int64_t count, uint64_t seed) { return memory.RandomAt<T>(0, count, seed, 1); }
  int64_t keys() const { return shape.a * (shape.d - shape.t); }

  // The formulas, in double.
  Vector Normed(const Vector& latent, const Vector& gamma) const;
  Vector Heads(const Vector& normed, const Vector& x, const Vector& w_query, const Vector& w_key_value) const;

  const LatentShape shape;
  const int64_t n = shape.n, z = shape.z(), inputs = shape.query_inputs();
  std::unique_ptr<Backend> backend = MakeTestBackend();
  LayerBackend<T>& ops = OpsOf<T>(*backend);
  TestMemory memory;
  const T* latent = Random(n * z, 1);
  const T* gamma = Random(shape.p + shape.r, 2);
  const T* x = Random(n * shape.h, 3);
  const T* w_query = Random(shape.a * shape.d * inputs, 4);
  const T* w_key_value = Random((keys() + shape.a * shape.e) * shape.r, 5);
  const Vector latent_d = ToDouble(latent, n*z), gamma_d = ToDouble(gamma, shape.p + shape.r), x_d = ToDouble(x, n*shape.h),
               w_query_d = ToDouble(w_query, shape.a*shape.d*inputs),
               w_key_value_d = ToDouble(w_key_value, (keys() + shape.a * shape.e) * shape.r);
};

template <class T>
Vector LatentOps<T>::Normed(const Vector& of, const Vector& scale) const {
  Vector normed = of;
  const auto norm = [&](int64_t token, int64_t begin, int64_t count) {
    if (count == 0) return;
    const auto at = of.begin() + token * z + begin;
    const Vector part = reference::RmsNorm(Vector(at, at + count), Vector(scale.begin() + begin, scale.begin() + begin + count),
                                           1, count, kEpsilon);
    std::copy(part.begin(), part.end(), normed.begin() + token * z + begin);
  };
  for (int64_t token = 0; token < n; ++token) {
    norm(token, 0, shape.p);
    norm(token, shape.p, shape.r);
  }
  return normed;
}

template <class T>
Vector LatentOps<T>::Heads(const Vector& normed, const Vector& input, const Vector& query, const Vector& key_value) const {
  Vector qkv;
  const auto dot = [](const Vector& a, int64_t a_at, const Vector& b, int64_t b_at, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += a[a_at + i] * b[b_at + i];
    return sum;
  };
  for (int64_t token = 0; token < n; ++token) {
    const int64_t at = token * z, made = shape.d - shape.t;
    for (int64_t i = 0; i < shape.a * shape.d; ++i) {
      qkv.push_back(shape.p == 0 ? dot(input, token * shape.h, query, i * inputs, inputs)
                                 : dot(normed, at, query, i * inputs, inputs));
    }
    for (int64_t head = 0; head < shape.a; ++head) {
      for (int64_t i = 0; i < shape.t; ++i) qkv.push_back(normed[at + shape.p + shape.r + i]);
      for (int64_t i = 0; i < made; ++i) {
        qkv.push_back(dot(normed, at + shape.p, key_value, (head * made + i) * shape.r, shape.r));
      }
    }
    for (int64_t i = 0; i < shape.a * shape.e; ++i) {
      qkv.push_back(dot(normed, at + shape.p, key_value, (keys() + i) * shape.r, shape.r));
    }
  }
  return qkv;
}

template <class T>
void LatentOps<T>::ExpectNorms() {
  T* normed = memory.OutputOf<T>(n * z);
  ops.LatentNormForward(shape, latent, gamma, kEpsilon, normed);
  ExpectClose(normed, Normed(latent_d, gamma_d), kOfSums, "normed");

  T* dlatent = memory.RandomAt<T>(0, n * z, 6);
  const Vector dnormed = ToDouble(dlatent, n * z);
  float* dgamma = memory.Constant(shape.p + shape.r, 0.25f);
  ops.LatentNormBackward(shape, latent, gamma, kEpsilon, dlatent, dgamma);
  ExpectClose(dlatent,
              reference::Gradient([&](const Vector& v) { return reference::Dot(Normed(v, gamma_d), dnormed); }, latent_d),
              kOfGradients, "dlatent");
  Vector want = reference::Gradient([&](const Vector& v) { return reference::Dot(Normed(latent_d, v), dnormed); }, gamma_d);
  for (double& value : want) value += 0.25;
  ExpectClose(dgamma, want, kOfGradients, "dgamma");
  memory.ExpectGuardsIntact();
}

template <class T>
void LatentOps<T>::ExpectHeads() {
  T* qkv = memory.OutputOf<T>(n * shape.width());
  ops.LatentHeadsForward(shape, latent, shape.p == 0 ? x : nullptr, w_query, w_key_value, qkv);
  ExpectClose(qkv, Heads(latent_d, x_d, w_query_d, w_key_value_d), kOfSums, "qkv");
  memory.ExpectGuardsIntact();
}

template <class T>
void LatentOps<T>::ExpectHeadsBackward() {
  const bool direct = shape.p == 0;
  const T* dqkv = Random(n * shape.width(), 7);
  const Vector dqkv_d = ToDouble(dqkv, n * shape.width());
  T *dnormed = memory.OutputOf<T>(n * z), *dx = memory.OutputOf<T>(n * shape.h);
  float* const workspace = std::is_same_v<T, float> ? nullptr : memory.Output(n * shape.r);
  ops.LatentHeadsBackward(shape, dqkv, w_query, w_key_value, workspace, dnormed, direct ? dx : nullptr);
  ExpectClose(dnormed,
              reference::Gradient(
                  [&](const Vector& v) { return reference::Dot(Heads(v, x_d, w_query_d, w_key_value_d), dqkv_d); }, latent_d),
              kOfGradients, "dnormed");
  if (direct) {
    ExpectClose(dx,
                reference::Gradient(
                    [&](const Vector& v) { return reference::Dot(Heads(latent_d, v, w_query_d, w_key_value_d), dqkv_d); }, x_d),
                kOfGradients, "dx");
  }
  float* dw_query = memory.Constant(static_cast<int64_t>(w_query_d.size()), 0.5f);
  float* dw_key_value = memory.Constant(static_cast<int64_t>(w_key_value_d.size()), 0.5f);
  ops.LatentHeadsWeight(shape, latent, direct ? x : nullptr, dqkv, dw_query, dw_key_value);
  Vector query = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(Heads(latent_d, x_d, v, w_key_value_d), dqkv_d); }, w_query_d);
  Vector key_value = reference::Gradient(
      [&](const Vector& v) { return reference::Dot(Heads(latent_d, x_d, w_query_d, v), dqkv_d); }, w_key_value_d);
  for (Vector* want : {&query, &key_value}) {
    for (double& value : *want) value += 0.5;
  }
  ExpectClose(dw_query, query, kOfGradients, "dw_query");
  ExpectClose(dw_key_value, key_value, kOfGradients, "dw_key_value");
  memory.ExpectGuardsIntact();
}

class Latent : public testing::TestWithParam<LatentShape> {};

TEST_P(Latent, NormsEqualTheFormula) {
  LatentOps<float>(GetParam()).ExpectNorms();
  LatentOps<Bfloat16>(GetParam()).ExpectNorms();
}

TEST_P(Latent, HeadsEqualTheFormula) {
  LatentOps<float>(GetParam()).ExpectHeads();
  LatentOps<Bfloat16>(GetParam()).ExpectHeads();
}

TEST_P(Latent, GradientsOfHeadsEqualFiniteDifferences) {
  LatentOps<float>(GetParam()).ExpectHeadsBackward();
  LatentOps<Bfloat16>(GetParam()).ExpectHeadsBackward();
}

// Queries from latents and from the layer's input; heads that are rotated completely; one head; widths that fit packs.
INSTANTIATE_TEST_SUITE_P(Shapes, Latent,
                         testing::Values(LatentShape{.n = 5, .h = 7, .p = 6, .r = 3, .t = 2, .a = 3, .d = 5, .e = 4},
                                         LatentShape{.n = 4, .h = 6, .p = 0, .r = 5, .t = 4, .a = 2, .d = 6, .e = 3},
                                         LatentShape{.n = 3, .h = 5, .p = 2, .r = 4, .t = 4, .a = 2, .d = 4, .e = 9},
                                         LatentShape{.n = 1, .h = 2, .p = 0, .r = 1, .t = 2, .a = 1, .d = 3, .e = 1},
                                         LatentShape{.n = 3, .h = 8, .p = 16, .r = 8, .t = 8, .a = 2, .d = 16, .e = 8}),
                         [](const auto& info) {
                           return "p" + std::to_string(info.param.p) + "r" + std::to_string(info.param.r) + "a" +
                                  std::to_string(info.param.a);
                         });

// Fused attention whose heads of values have another size than those of keys, and whose scores have a factor.
class ValueSizes : public testing::TestWithParam<AttentionShape> {
 protected:
  template <class T>
  void ExpectFormulas(double of_context, double of_gradient) {
    const AttentionShape shape = GetParam();
    const DropoutKey key{0.2, 11, 7, 2, 5, 40};
    const int64_t qkv_count = shape.b * shape.s * shape.width();
    const int64_t context_count = shape.b * shape.s * shape.a * shape.value_size(), rows = shape.b * shape.a * shape.s;
    const std::unique_ptr<Backend> backend = MakeTestBackend();
    TestMemory memory;
    const T *qkv = memory.RandomAt<T>(0, qkv_count, 1, 2), *dcontext = memory.RandomAt<T>(0, context_count, 2);
    const Vector qkv_d = ToDouble(qkv, qkv_count), dcontext_d = ToDouble(dcontext, context_count);
    T *context = memory.OutputOf<T>(context_count), *dqkv = memory.OutputOf<T>(qkv_count);
    float* const lse = memory.Output(rows);
    float* const forward = memory.Output(WideHeadFloats<T>(shape, 2, 2));
    float* const backward = memory.Output(rows + WideHeadFloats<T>(shape, 4, 3));
    const auto formula = [&](const Vector& v) { return reference::Context(shape, reference::Probs(shape, v), v, key); };
    OpsOf<T>(*backend).FlashForward(shape, qkv, key, forward, context, lse);
    ExpectClose(context, formula(qkv_d), of_context, "context");
    ExpectClose(lse, reference::LogSumExp(shape, qkv_d), 4e-6, "lse");
    OpsOf<T>(*backend).FlashBackward(shape, qkv, context, lse, dcontext, key, backward, dqkv);
    const Vector want = reference::Gradient([&](const Vector& v) { return reference::Dot(formula(v), dcontext_d); }, qkv_d);
    ExpectClose(dqkv, want, of_gradient, "dqkv");
    memory.ExpectGuardsIntact();
  }
};

TEST_P(ValueSizes, FusedAttentionEqualsTheFormula) {
  ExpectFormulas<float>(4e-6, 5e-6);
  ExpectFormulas<Bfloat16>(FusedAttentionTolerance(), 2 * kBfloat16Rounding);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ValueSizes,
    testing::Values(AttentionShape{.b = 2, .s = 6, .a = 4, .k = 2, .d = 3, .first_head = 3, .e = 5, .factor = 1.5f},
                    AttentionShape{.b = 1, .s = 70, .a = 1, .k = 1, .d = 3, .e = 1, .factor = 0.75f},
                    AttentionShape{.b = 1, .s = 33, .a = 2, .k = 2, .d = 2, .e = 4},
                    AttentionShape{.b = 1, .s = 5, .a = 2, .k = 2, .d = 4, .factor = 2}),
    [](const auto& info) { return "s" + std::to_string(info.param.s) + "e" + std::to_string(info.param.e); });

TEST(Linear, InputGradientsAreAddedToWhatIsThere) {
  const std::unique_ptr<Backend> backend = MakeTestBackend();
  const auto expect = [&]<class T>(T) {
    constexpr int64_t kN = 5, kIn = 7, kOut = 3;
    TestMemory memory;
    const T *dy = memory.RandomAt<T>(0, kN * kOut, 1), *w = memory.RandomAt<T>(0, kOut * kIn, 2);
    T* dx = memory.RandomAt<T>(0, kN * kIn, 3);
    Vector want = ToDouble(dx, kN * kIn);
    const Vector dy_d = ToDouble(dy, kN * kOut), w_d = ToDouble(w, kOut * kIn);
    for (int64_t row = 0; row < kN; ++row) {
      for (int64_t i = 0; i < kIn; ++i) {
        for (int64_t j = 0; j < kOut; ++j) want[row * kIn + i] += dy_d[row * kOut + j] * w_d[j * kIn + i];
      }
    }
    OpsOf<T>(*backend).AddLinearBackward(dy, w, kN, kIn, kOut, dx);
    ExpectClose(dx, want, 2e-6, "dx");
    memory.ExpectGuardsIntact();
  };
  expect(float());
  expect(Bfloat16());
}

}  // namespace
}  // namespace lynx::worker
