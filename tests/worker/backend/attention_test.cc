#include <gtest/gtest.h>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx {
namespace {

using reference::Vector;

struct Shape {
  int64_t b, s, a, d;
  double rate;
};

std::string ShapeName(const testing::TestParamInfo<Shape>& info) {
  const Shape& shape = info.param;
  return "b" + std::to_string(shape.b) + "s" + std::to_string(shape.s) + "a" + std::to_string(shape.a) + "d" +
         std::to_string(shape.d) + (shape.rate > 0 ? "dropout" : "");
}

class Attention : public testing::TestWithParam<Shape> {
 protected:
  const int64_t b = GetParam().b, s = GetParam().s, a = GetParam().a, d = GetParam().d;
  const int64_t first_head = 3, all_heads = 3 + a + 2;
  const DropoutKey key{GetParam().rate, 11, 7, 2, 5, 40};
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  TestMemory memory;
  const float* qkv = memory.Random(b * s * 3 * a * d, 1, 2);
  const float* dcontext = memory.Random(b * s * a * d, 2);
  float* probs = memory.Output(b * a * s * s);
  const Vector qkv_d = ToDouble(qkv, b* s * 3 * a * d);

  // Null at rate 0, where the header promises not to use it.
  float* ForwardWorkspace() { return key.rate > 0 ? memory.Output(s * s) : nullptr; }
};

TEST_P(Attention, ForwardEqualsTheFormula) {
  float* context = memory.Output(b * s * a * d);
  backend->ProbsForward(qkv, b, s, a, d, probs);
  backend->ContextForward(probs, qkv, b, s, a, d, first_head, all_heads, key, ForwardWorkspace(), context);
  const Vector probs_d = reference::Probs(qkv_d, b, s, a, d);
  ExpectClose(probs, probs_d, 2e-6, "probs");
  ExpectClose(context, reference::Context(probs_d, qkv_d, b, s, a, d, first_head, key), 4e-6, "context");
  for (int64_t head = 0; head < b * a; ++head) {
    for (int64_t row = 0; row < s; ++row) {
      for (int64_t column = row + 1; column < s; ++column) ASSERT_EQ(probs[(head * s + row) * s + column], 0.0f);
    }
  }
  memory.ExpectGuardsIntact();
}

TEST_P(Attention, SplitOverRanksGivesTheSameContext) {
  if (a % 2 != 0) return;  // the even shapes show it
  float* whole = memory.Output(b * s * a * d);
  backend->ProbsForward(qkv, b, s, a, d, probs);
  backend->ContextForward(probs, qkv, b, s, a, d, 0, a, key, ForwardWorkspace(), whole);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const int64_t half = a / 2;
    std::vector<float> shard;
    for (int64_t row = 0; row < b * s * 3; ++row) {
      const float* first = qkv + (row * a + rank * half) * d;
      shard.insert(shard.end(), first, first + half * d);
    }
    const float* shard_qkv = memory.Copy(shard);
    float* shard_probs = memory.Output(b * half * s * s);
    float* shard_context = memory.Output(b * s * half * d);
    backend->ProbsForward(shard_qkv, b, s, half, d, shard_probs);
    backend->ContextForward(shard_probs, shard_qkv, b, s, half, d, rank * half, a, key, ForwardWorkspace(),
                            shard_context);
    Vector want;
    for (int64_t row = 0; row < b * s; ++row) {
      const float* first = whole + (row * a + rank * half) * d;
      want.insert(want.end(), first, first + half * d);
    }
    ExpectClose(shard_context, want, 1e-6, "context of rank " + std::to_string(rank));
  }
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Shape{1, 1, 1, 1, 0}, Shape{2, 5, 2, 3, 0}, Shape{2, 7, 4, 4, 0.3},
                                         Shape{1, 64, 2, 8, 0.1}, Shape{1, 65, 1, 8, 0}, Shape{2, 150, 2, 5, 0.2}),
                         ShapeName);

// Finite differences take a forward pass per input, so the shapes are smaller, but cross the block size.
class AttentionGradient : public Attention {};

TEST_P(AttentionGradient, EqualsFiniteDifferences) {
  backend->ProbsForward(qkv, b, s, a, d, probs);
  float* dqkv = memory.Output(b * s * 3 * a * d);
  backend->AttentionBackward(probs, qkv, dcontext, b, s, a, d, first_head, all_heads, key, memory.Output(2 * s * s),
                             dqkv);
  const Vector dcontext_d = ToDouble(dcontext, b * s * a * d);
  const Vector want = reference::Gradient(
      [&](const Vector& v) {
        const Vector p = reference::Probs(v, b, s, a, d);
        return reference::Dot(reference::Context(p, v, b, s, a, d, first_head, key), dcontext_d);
      },
      qkv_d);
  ExpectClose(dqkv, want, 5e-6, "dqkv");
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradient,
                         testing::Values(Shape{1, 1, 1, 1, 0}, Shape{2, 5, 2, 3, 0}, Shape{2, 7, 2, 4, 0.3},
                                         Shape{1, 64, 1, 2, 0}, Shape{1, 70, 1, 2, 0.2}, Shape{1, 130, 1, 1, 0}),
                         ShapeName);

}  // namespace
}  // namespace lynx
