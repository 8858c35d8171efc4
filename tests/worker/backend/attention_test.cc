#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

struct Case {
  AttentionShape shape;
  double rate;
};

AttentionShape Shape(int64_t b, int64_t s, int64_t a, int64_t k, int64_t d) {
  return {.b = b, .s = s, .a = a, .k = k, .d = d, .first_head = 3};
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const AttentionShape& shape = info.param.shape;
  return "b" + std::to_string(shape.b) + "s" + std::to_string(shape.s) + "a" + std::to_string(shape.a) + "k" +
         std::to_string(shape.k) + "d" + std::to_string(shape.d) + (info.param.rate > 0 ? "dropout" : "");
}

class Attention : public testing::TestWithParam<Case> {
 protected:
  const AttentionShape shape = GetParam().shape;
  const int64_t b = shape.b, s = shape.s, a = shape.a, d = shape.d;
  const int64_t qkv_count = b * s * shape.width(), context_count = b * s * a * d;
  const DropoutKey key{GetParam().rate, 11, 7, 2, 5, 40};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* qkv = memory.Random(qkv_count, 1, 2);
  const float* dcontext = memory.Random(context_count, 2);
  float* probs = memory.Output(b * a * s * s);
  const Vector qkv_d = ToDouble(qkv, qkv_count);

  // Returns nullptr if the dropout rate is 0, because backend.h promises not to use the workspace then.
  float* ForwardWorkspace() { return key.rate > 0 ? memory.Output(std::min(kAttentionRows, s) * s) : nullptr; }
};

TEST_P(Attention, ForwardEqualsTheFormula) {
  float* context = memory.Output(context_count);
  backend->ProbsForward(shape, qkv, nullptr, probs);
  backend->ContextForward(shape, probs, qkv, key, ForwardWorkspace(), context);
  const Vector probs_d = reference::Probs(shape, qkv_d);
  ExpectClose(probs, probs_d, 2e-6, "probs");
  ExpectClose(context, reference::Context(shape, probs_d, qkv_d, key), 4e-6, "context");
  for (int64_t head = 0; head < b * a; ++head) {
    for (int64_t row = 0; row < s; ++row) {
      for (int64_t column = row + 1; column < s; ++column) ASSERT_EQ(probs[(head * s + row) * s + column], 0.0f);
    }
  }
  memory.ExpectGuardsIntact();
}

TEST_P(Attention, FusedForwardEqualsTheFormula) {
  float* context = memory.Output(context_count);
  float* lse = memory.Output(b * a * s);
  backend->FlashForward(shape, qkv, key, nullptr, context, lse);
  const Vector probs_d = reference::Probs(shape, qkv_d);
  ExpectClose(context, reference::Context(shape, probs_d, qkv_d, key), 4e-6, "context");
  ExpectClose(lse, reference::LogSumExp(shape, qkv_d), 2e-6, "lse");
  memory.ExpectGuardsIntact();
}

TEST_P(Attention, SplitOverRanksGivesTheSameContext) {
  if (shape.k % 2 != 0) return;  // two ranks cannot share an odd number of key heads
  AttentionShape all = shape;
  all.first_head = 0;
  float* whole = memory.Output(context_count);
  backend->ProbsForward(all, qkv, nullptr, probs);
  backend->ContextForward(all, probs, qkv, key, ForwardWorkspace(), whole);
  for (int64_t rank = 0; rank < 2; ++rank) {
    AttentionShape half = all;
    half.a = a / 2;
    half.k = shape.k / 2;
    half.first_head = rank * half.a;
    std::vector<float> shard;
    for (int64_t token = 0; token < b * s; ++token) {
      const float* row = qkv + token * all.width();
      for (const int64_t heads : {half.a, half.k, half.k}) {  // numbers of heads of queries, keys, values
        shard.insert(shard.end(), row + rank * heads * d, row + (rank + 1) * heads * d);
        row += 2 * heads * d;
      }
    }
    const float* shard_qkv = memory.Copy(shard);
    float* shard_probs = memory.Output(b * half.a * s * s);
    float* shard_context = memory.Output(b * s * half.a * d);
    backend->ProbsForward(half, shard_qkv, nullptr, shard_probs);
    backend->ContextForward(half, shard_probs, shard_qkv, key, ForwardWorkspace(), shard_context);
    Vector want;
    for (int64_t row = 0; row < b * s; ++row) {
      const float* first = whole + (row * a + half.first_head) * d;
      want.insert(want.end(), first, first + half.a * d);
    }
    ExpectClose(shard_context, want, 1e-6, "context of rank " + std::to_string(rank));
  }
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Case{Shape(1, 1, 1, 1, 1), 0}, Case{Shape(2, 5, 2, 2, 3), 0},
                                         Case{Shape(2, 7, 4, 4, 4), 0.3}, Case{Shape(1, 64, 2, 2, 8), 0.1},
                                         Case{Shape(1, 65, 1, 1, 8), 0}, Case{Shape(2, 150, 2, 2, 5), 0.2},
                                         Case{Shape(2, 70, 6, 2, 4), 0}, Case{Shape(1, 9, 4, 1, 3), 0.3}),
                         CaseName);

// Finite differences need a forward pass for each input. So all shapes are small, but some are still larger than a block.
class AttentionGradient : public Attention {};

TEST_P(AttentionGradient, EqualsFiniteDifferences) {
  backend->ProbsForward(shape, qkv, nullptr, probs);
  float* dqkv = memory.Output(qkv_count);
  backend->AttentionBackward(shape, probs, qkv, dcontext, key, memory.Output(2 * std::min(kAttentionRows, s) * s), dqkv);
  const Vector dcontext_d = ToDouble(dcontext, context_count);
  const Vector want = reference::Gradient(
      [&](const Vector& v) {
        return reference::Dot(reference::Context(shape, reference::Probs(shape, v), v, key), dcontext_d);
      },
      qkv_d);
  ExpectClose(dqkv, want, 5e-6, "dqkv");
  memory.ExpectGuardsIntact();
}

TEST_P(AttentionGradient, OfFusedAttentionEqualsFiniteDifferences) {
  float* context = memory.Output(context_count);
  float* lse = memory.Output(b * a * s);
  float* dqkv = memory.Output(qkv_count);
  backend->FlashForward(shape, qkv, key, nullptr, context, lse);
  backend->FlashBackward(shape, qkv, context, lse, dcontext, key, memory.Output(b * a * s), dqkv);
  const Vector dcontext_d = ToDouble(dcontext, context_count);
  const Vector want = reference::Gradient(
      [&](const Vector& v) {
        return reference::Dot(reference::Context(shape, reference::Probs(shape, v), v, key), dcontext_d);
      },
      qkv_d);
  ExpectClose(dqkv, want, 5e-6, "dqkv");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradient,
                         testing::Values(Case{Shape(1, 1, 1, 1, 1), 0}, Case{Shape(2, 5, 2, 2, 3), 0},
                                         Case{Shape(2, 7, 2, 2, 4), 0.3}, Case{Shape(1, 64, 1, 1, 2), 0},
                                         Case{Shape(1, 70, 1, 1, 2), 0.2}, Case{Shape(1, 130, 1, 1, 1), 0},
                                         Case{Shape(2, 6, 4, 2, 3), 0.3}, Case{Shape(1, 66, 3, 1, 1), 0}),
                         CaseName);

// These shapes have several tiles in both directions. They are too large for a check by finite differences, so the test
// compares the fused and the unfused kernels.
class LongAttention : public Attention {};

TEST_P(LongAttention, FusedAndUnfusedAgree) {
  float *context = memory.Output(context_count), *fused_context = memory.Output(context_count);
  float *dqkv = memory.Output(qkv_count), *fused_dqkv = memory.Output(qkv_count);
  float* lse = memory.Output(b * a * s);
  backend->ProbsForward(shape, qkv, nullptr, probs);
  backend->ContextForward(shape, probs, qkv, key, ForwardWorkspace(), context);
  backend->AttentionBackward(shape, probs, qkv, dcontext, key, memory.Output(2 * std::min(kAttentionRows, s) * s), dqkv);
  backend->FlashForward(shape, qkv, key, nullptr, fused_context, lse);
  backend->FlashBackward(shape, qkv, fused_context, lse, dcontext, key, memory.Output(b * a * s), fused_dqkv);
  ExpectClose(fused_context, ToDouble(context, context_count), 4e-6, "context");
  ExpectClose(fused_dqkv, ToDouble(dqkv, qkv_count), 1e-5, "dqkv");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, LongAttention,
                         testing::Values(Case{Shape(1, 256, 2, 1, 16), 0}, Case{Shape(1, 400, 2, 2, 8), 0.2},
                                         Case{Shape(1, 321, 3, 1, 4), 0.1}, Case{Shape(1, 513, 1, 1, 33), 0}),
                         CaseName);

// Large scores must not overflow: the context stays within the range of the values, and the gradients are finite.
TEST(FusedAttention, LargeScoresAreFinite) {
  const AttentionShape shape = Shape(1, 300, 1, 1, 4);
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const float* qkv = memory.Random(300 * shape.width(), 1, 300);
  float* context = memory.Output(300 * 4);
  float* lse = memory.Output(300);
  float* dqkv = memory.Output(300 * shape.width());
  backend->FlashForward(shape, qkv, {}, nullptr, context, lse);
  backend->FlashBackward(shape, qkv, context, lse, memory.Random(300 * 4, 2), {}, memory.Output(300), dqkv);
  for (int64_t i = 0; i < 300 * 4; ++i) ASSERT_LE(std::fabs(context[i]), 301.0f);  // a mean of values, so at most the largest
  for (int64_t i = 0; i < 300 * shape.width(); ++i) ASSERT_TRUE(std::isfinite(dqkv[i]));
  memory.ExpectGuardsIntact();
}

}  // namespace
}  // namespace lynx::worker
