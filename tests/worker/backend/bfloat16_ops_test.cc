// Tests the ops on bfloat16 against their formulas and finite differences in double. A result may differ by one rounding to
// bfloat16 and by the errors of fp32 arithmetic, because sums are computed in fp32 and rounded once.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/rotary.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

constexpr double kFloat = 1e-5;  // error of fp32 arithmetic

class Bfloat16Ops : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = MakeTestBackend();
  LayerBackend<Bfloat16>& ops = backend->bfloat16();
  TestMemory memory;
};

// The backend rounds many numbers with vector instructions. Their results must be those of the type's conversion, which has a
// test of its own.
TEST_F(Bfloat16Ops, RoundIsThatOfTheType) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 40'003; ++i) values.push_back(std::bit_cast<float>(i * 107'374u));
  const float* from = memory.Copy(values);
  Bfloat16* to = memory.OutputBfloat16(static_cast<int64_t>(values.size()));
  backend->Round(from, static_cast<int64_t>(values.size()), to);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(to[i].bits, Bfloat16(values[i]).bits) << i;
  backend->Round(from + 1, 100, to);  // this address is not aligned to packs
  for (size_t i = 0; i < 101; ++i) ASSERT_EQ(to[i].bits, Bfloat16(values[i < 100 ? i + 1 : i]).bits) << i;
  memory.ExpectGuardsIntact();
}

TEST_F(Bfloat16Ops, GeluEqualsTheFormula) {
  constexpr int64_t kCount = 1003;
  const Bfloat16* x = memory.RandomBfloat16(kCount, 1, 6);
  Bfloat16* y = memory.OutputBfloat16(kCount);
  Bfloat16* dy = memory.RandomBfloat16(kCount, 2);
  Vector slope(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const double at = x[i];
    const Vector around = reference::Gelu({at - 1e-6, at + 1e-6});
    slope[i] = dy[i] * (around[1] - around[0]) / 2e-6;
  }
  ops.GeluForward(x, kCount, y);
  ops.GeluBackward(x, kCount, dy);
  ExpectClose(y, reference::Gelu(ToDouble(x, kCount)), kFloat, "y");
  ExpectClose(dy, slope, kFloat, "dx");
  memory.ExpectGuardsIntact();
}

TEST_F(Bfloat16Ops, SwigluEqualsTheFormula) {
  constexpr int64_t kN = 7, kF = 67, kCount = kN * 2 * kF;
  const Bfloat16* gated = memory.RandomBfloat16(kCount, 1, 6);
  const Bfloat16* dy = memory.RandomBfloat16(kN * kF, 2);
  Bfloat16 *silu = memory.OutputBfloat16(kN * kF), *y = memory.OutputBfloat16(kN * kF);
  Bfloat16* dgated = memory.OutputBfloat16(kCount);
  ops.SiluForward(gated, kN, kF, silu);
  ops.SwigluForward(gated, silu, kN, kF, y);
  ops.SwigluBackward(gated, silu, dy, kN, kF, dgated);
  ops.SiluBackward(gated, kN, kF, dgated);
  const Vector gated_d = ToDouble(gated, kCount), dy_d = ToDouble(dy, kN * kF);
  // silu is rounded before the multiplication, and one half of dgated is rounded twice.
  ExpectClose(y, reference::Swiglu(gated_d, kN, kF), kBfloat16Rounding, "y");
  ExpectClose(dgated,
              reference::Gradient([&](const Vector& v) { return reference::Dot(reference::Swiglu(v, kN, kF), dy_d); }, gated_d),
              kBfloat16Rounding, "dgated");
  memory.ExpectGuardsIntact();
}

TEST_F(Bfloat16Ops, RopeEqualsTheFormula) {
  constexpr AttentionShape kShape{.b = 2, .s = 7, .a = 3, .k = 1, .d = 10};
  constexpr int64_t kCount = kShape.b * kShape.s * kShape.width();
  Bfloat16 *qkv = memory.RandomBfloat16(kCount, 1), *dqkv = memory.RandomBfloat16(kCount, 2);
  const Vector qkv_d = ToDouble(qkv, kCount), dout = ToDouble(dqkv, kCount);
  const RotaryTable rotary = PlainRotary(kShape.d);
  ops.RopeForward(kShape, rotary, qkv);
  ops.RopeBackward(kShape, rotary, dqkv);
  ExpectClose(qkv, reference::Rope(kShape, rotary, qkv_d), kFloat, "qkv");
  ExpectClose(
      dqkv,
      reference::Gradient([&](const Vector& v) { return reference::Dot(reference::Rope(kShape, rotary, v), dout); }, qkv_d),
      kFloat, "dqkv");
  memory.ExpectGuardsIntact();
}

TEST_F(Bfloat16Ops, QkNormEqualsTheFormula) {
  constexpr AttentionShape kShape{.b = 2, .s = 3, .a = 3, .k = 1, .d = 10};
  constexpr int64_t kCount = kShape.b * kShape.s * kShape.width();
  const Bfloat16 *qkv = memory.RandomBfloat16(kCount, 1), *q_gamma = memory.RandomBfloat16(kShape.d, 2),
                 *k_gamma = memory.RandomBfloat16(kShape.d, 3);
  Bfloat16 *normed = memory.OutputBfloat16(kCount), *dqkv = memory.RandomBfloat16(kCount, 4);
  float *dq_gamma = memory.Constant(kShape.d, 0), *dk_gamma = memory.Constant(kShape.d, 0);
  const Vector qkv_d = ToDouble(qkv, kCount), q_d = ToDouble(q_gamma, kShape.d), k_d = ToDouble(k_gamma, kShape.d),
               dout = ToDouble(dqkv, kCount);
  ops.QkNormForward(kShape, qkv, q_gamma, k_gamma, 1e-5f, normed);
  ops.QkNormBackward(kShape, qkv, q_gamma, k_gamma, 1e-5f, dqkv, dq_gamma, dk_gamma);
  const auto loss = [&](const Vector& x, const Vector& q, const Vector& k) {
    return reference::Dot(reference::QkNorm(kShape, x, q, k, 1e-5), dout);
  };
  ExpectClose(normed, reference::QkNorm(kShape, qkv_d, q_d, k_d, 1e-5), kFloat, "normed");
  ExpectClose(dqkv, reference::Gradient([&](const Vector& v) { return loss(v, q_d, k_d); }, qkv_d), kFloat, "dqkv");
  ExpectClose(dq_gamma, reference::Gradient([&](const Vector& v) { return loss(qkv_d, v, k_d); }, q_d), kFloat, "dq_gamma");
  ExpectClose(dk_gamma, reference::Gradient([&](const Vector& v) { return loss(qkv_d, q_d, v); }, k_d), kFloat, "dk_gamma");
  memory.ExpectGuardsIntact();
}

TEST_F(Bfloat16Ops, EmbeddingGathersAndAddsUpRows) {
  constexpr int64_t kTokens = 50, kHidden = 9, kRows = 7;
  constexpr int32_t kFirstRow = 5;
  const int32_t* tokens = memory.Tokens(kTokens, kFirstRow + kRows + 3, 1);
  const Bfloat16* table = memory.RandomBfloat16(kRows * kHidden, 2);
  const Bfloat16* dout = memory.RandomBfloat16(kTokens * kHidden, 3);
  Bfloat16* out = memory.OutputBfloat16(kTokens * kHidden);
  float* dtable = memory.Constant(kRows * kHidden, 0.5f);
  ops.EmbeddingForward(tokens, table, kFirstRow, kTokens, kHidden, kRows, out);
  ops.EmbeddingBackward(tokens, dout, kFirstRow, kTokens, kHidden, kRows, dtable);
  Vector want(kRows * kHidden, 0.5);
  for (int64_t i = 0; i < kTokens * kHidden; ++i) {
    const int64_t row = tokens[i / kHidden] - kFirstRow;
    const bool here = row >= 0 && row < kRows;
    ASSERT_EQ(out[i].bits, here ? table[row * kHidden + i % kHidden].bits : 0);
    if (here) want[row * kHidden + i % kHidden] += dout[i];
  }
  ExpectClose(dtable, want, 1e-6, "dtable");  // dtable is fp32
  memory.ExpectGuardsIntact();
}

class Bfloat16Norm : public Bfloat16Ops, public testing::WithParamInterface<int64_t> {
 protected:
  const int64_t n = 5, h = GetParam();
  const Bfloat16 *x = memory.RandomBfloat16(n * h, 1, 3), *gamma = memory.RandomBfloat16(h, 2),
                 *beta = memory.RandomBfloat16(h, 3), *dy = memory.RandomBfloat16(n * h, 4);
  const Vector x_d = ToDouble(x, n*h), gamma_d = ToDouble(gamma, h), beta_d = ToDouble(beta, h), dy_d = ToDouble(dy, n*h);
  Bfloat16 *y = memory.OutputBfloat16(n * h), *dx = memory.OutputBfloat16(n * h);
  Bfloat16* added_to_dx = memory.CopyBfloat16(std::vector<float>(n * h, 0.5f));
  float *dgamma = memory.Constant(h, 0.25f), *dbeta = memory.Constant(h, 0.75f);
  float* unused = memory.Constant(2 * h, 0);

  void ExpectGradients(const std::function<Vector(const Vector&, const Vector&, const Vector&)>& norm) {
    const auto gradient = [&](const auto& of, const Vector& at, double before) {
      Vector want = reference::Gradient([&](const Vector& v) { return reference::Dot(of(v), dy_d); }, at);
      for (double& value : want) value += before;
      return want;
    };
    const auto of_x = [&](const Vector& v) { return norm(v, gamma_d, beta_d); };
    ExpectClose(y, norm(x_d, gamma_d, beta_d), kFloat, "y");
    ExpectClose(dx, gradient(of_x, x_d, 0), kFloat, "dx");
    ExpectClose(added_to_dx, gradient(of_x, x_d, 0.5), kFloat, "dx, added to");
    ExpectClose(dgamma, gradient([&](const Vector& v) { return norm(x_d, v, beta_d); }, gamma_d, 0.25), kFloat, "dgamma");
    ExpectClose(dbeta, gradient([&](const Vector& v) { return norm(x_d, gamma_d, v); }, beta_d, 0.75), kFloat, "dbeta");
    memory.ExpectGuardsIntact();
  }
};

TEST_P(Bfloat16Norm, LayerNormEqualsTheFormula) {
  ops.LayerNormForward(x, gamma, beta, n, h, 1e-5f, y);
  ops.LayerNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/false, dx, dgamma, dbeta);
  ops.LayerNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/true, added_to_dx, unused, unused + h);
  ExpectGradients([&](const Vector& v, const Vector& g, const Vector& b) { return reference::LayerNorm(v, g, b, n, h); });
}

TEST_P(Bfloat16Norm, RmsNormEqualsTheFormula) {
  ops.RmsNormForward(x, gamma, n, h, 1e-5f, y);
  ops.RmsNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/false, dx, dgamma);
  ops.RmsNormBackward(x, gamma, dy, n, h, 1e-5f, /*accumulate=*/true, added_to_dx, unused);
  ExpectGradients([&](const Vector& v, const Vector& g, const Vector&) { return reference::RmsNorm(v, g, n, h); });
}

INSTANTIATE_TEST_SUITE_P(Widths, Bfloat16Norm, testing::Values(3, 16, 33, 96));

// The parameters are dropout's rate and h. A device reads rows of 24 elements in packs.
class Bfloat16Dropout : public Bfloat16Ops, public testing::WithParamInterface<std::tuple<double, int64_t>> {
 protected:
  const int64_t b = 3, s = 5, h = std::get<1>(GetParam()), n = b * s;
  const DropoutKey key{std::get<0>(GetParam()), 99, 3, 1, 12, 6};
};

TEST_P(Bfloat16Dropout, PositionEqualsTheFormula) {
  Bfloat16 *x = memory.RandomBfloat16(n * h, 1), *dx = memory.RandomBfloat16(n * h, 3);
  const Bfloat16* pos = memory.RandomBfloat16(s * h, 2);
  float* dpos = memory.Constant(s * h, 0.5f);
  const Vector x_d = ToDouble(x, n * h), pos_d = ToDouble(pos, s * h), dout = ToDouble(dx, n * h);
  ops.PositionForward(x, pos, n, s, h, key);
  ops.PositionBackward(dx, dpos, n, s, h, key);
  const auto of = [&](const Vector& x_now, const Vector& pos_now) {
    return reference::Dot(reference::Position(x_now, pos_now, b, s, h, key), dout);
  };
  ExpectClose(x, reference::Position(x_d, pos_d, b, s, h, key), kFloat, "x");
  ExpectClose(dx, reference::Gradient([&](const Vector& v) { return of(v, pos_d); }, x_d), kFloat, "dx");
  Vector want = reference::Gradient([&](const Vector& v) { return of(x_d, v); }, pos_d);
  for (double& value : want) value += 0.5;
  ExpectClose(dpos, want, kFloat, "dpos");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Dropout, BiasDropoutAddEqualsTheFormula) {
  Bfloat16 *y = memory.RandomBfloat16(n * h, 1), *without_bias = memory.RandomBfloat16(n * h, 1);
  const Bfloat16 *residual = memory.RandomBfloat16(n * h, 2), *bias = memory.RandomBfloat16(h, 3);
  const Bfloat16* dout = memory.RandomBfloat16(n * h, 4);
  Bfloat16* dy = memory.OutputBfloat16(n * h);
  float* dbias = memory.Constant(h, 0.5f);
  const Vector y_d = ToDouble(y, n * h), residual_d = ToDouble(residual, n * h), bias_d = ToDouble(bias, h);
  ops.BiasDropoutAddForward(residual, bias, s, n, h, key, y);
  ops.BiasDropoutAddForward(residual, nullptr, s, n, h, key, without_bias);
  ops.BiasDropoutAddBackward(dout, s, n, h, key, dy);
  ops.BiasGradient(dout, n, h, dbias);
  const auto of = [&](const Vector& v, const Vector& bias_now) {
    return reference::BiasDropoutAdd(v, residual_d, bias_now, s, n, h, key);
  };
  ExpectClose(y, of(y_d, bias_d), kFloat, "y");
  ExpectClose(without_bias, of(y_d, {}), kFloat, "y without a bias");
  const Vector dout_d = ToDouble(dout, n * h);
  ExpectClose(dy, reference::Gradient([&](const Vector& v) { return reference::Dot(of(v, bias_d), dout_d); }, y_d), kFloat,
              "dy");
  Vector sums(h, 0.5);
  for (int64_t i = 0; i < n * h; ++i) sums[i % h] += dout_d[i];
  ExpectClose(dbias, sums, kFloat, "dbias");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Rates, Bfloat16Dropout, testing::Combine(testing::Values(0, 0.25), testing::Values<int64_t>(11, 24)));

// The gradient of the logits overwrites the first half of their memory. There are more columns than are processed at once.
TEST_F(Bfloat16Ops, LossGradientMayLieWhereTheLogitsDo) {
  constexpr int64_t kN = 6, kColumns = 2500, kValid = 2497;
  constexpr double kScale = 0.125;
  const int32_t* targets = memory.Tokens(kN, kValid, 1);
  float* logits = memory.Random(kN * kColumns, 2, 6);
  float* stats = memory.Output(kN * 3);
  Bfloat16* apart = memory.OutputBfloat16(kN * kColumns);
  Vector want(kN * kColumns, 0);
  for (int64_t token = 0; token < kN; ++token) {
    double sum = 0;
    for (int64_t i = 0; i < kValid; ++i) sum += std::exp(static_cast<double>(logits[token * kColumns + i]));
    for (int64_t i = 0; i < kValid; ++i) {
      const double probability = std::exp(static_cast<double>(logits[token * kColumns + i])) / sum;
      want[token * kColumns + i] = kScale * (probability - (targets[token] == i ? 1 : 0));
    }
  }
  backend->LossStats(logits, targets, 0, kN, kColumns, kValid, stats);
  ops.LossBackward(stats, targets, 0, 1, kN, kColumns, kValid, kScale, logits, apart);
  ExpectClose(apart, want, 1e-6, "dlogits");
  auto* const in_place = reinterpret_cast<Bfloat16*>(logits);
  ops.LossBackward(stats, targets, 0, 1, kN, kColumns, kValid, kScale, logits, in_place);
  EXPECT_EQ(std::memcmp(in_place, apart, kN * kColumns * sizeof(Bfloat16)), 0);
  memory.ExpectGuardsIntact();
}

}  // namespace
}  // namespace lynx::worker
