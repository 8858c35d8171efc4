// Compares attention on bfloat16 with its formula and with finite differences in double. The probabilities and the context are
// rounded once. Their gradients also have the errors of earlier rounding.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

using reference::Vector;

constexpr double kFloat = 1e-5;                       // error of fp32 arithmetic
constexpr double kOfRounded = 2 * kBfloat16Rounding;  // error of sums of rounded values

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

class Bfloat16Attention : public testing::TestWithParam<Case> {
 protected:
  const AttentionShape shape = GetParam().shape;
  const int64_t b = shape.b, s = shape.s, a = shape.a, d = shape.d, block = std::min(kAttentionRows, s) * s;
  const int64_t qkv_count = b * s * shape.width(), context_count = b * s * a * d, probs_count = b * a * s * s;
  const DropoutKey key{GetParam().rate, 11, 7, 2, 5, 40};
  std::unique_ptr<Backend> backend = MakeTestBackend();
  LayerBackend<Bfloat16>& ops = backend->bfloat16();
  TestMemory memory;
  const Bfloat16 *qkv = memory.RandomBfloat16(qkv_count, 1, 2), *dcontext = memory.RandomBfloat16(context_count, 2);
  Bfloat16 *probs = memory.OutputBfloat16(probs_count), *context = memory.OutputBfloat16(context_count);
  Bfloat16* dqkv = memory.OutputBfloat16(qkv_count);
  float* lse = memory.Output(b * a * s);
  const Vector qkv_d = ToDouble(qkv, qkv_count), dcontext_d = ToDouble(dcontext, context_count);

  // Returns a workspace of exactly the size that backend.h states.
  float* Workspace(int64_t first, int64_t whole, int64_t rows) {
    return memory.Output(first + WideHeadFloats<Bfloat16>(shape, whole, rows));
  }
  Vector WantedGradient() const {
    return reference::Gradient(
        [&](const Vector& v) {
          return reference::Dot(reference::Context(shape, reference::Probs(shape, v), v, key), dcontext_d);
        },
        qkv_d);
  }
};

TEST_P(Bfloat16Attention, ForwardEqualsTheFormula) {
  ops.ProbsForward(shape, qkv, Workspace(block, 1, 1), probs);
  ExpectClose(probs, reference::Probs(shape, qkv_d), kFloat, "probs");
  ops.ContextForward(shape, probs, qkv, key, Workspace(block, 1, 1), context);
  ExpectClose(context, reference::Context(shape, ToDouble(probs, probs_count), qkv_d, key), kFloat, "context");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Attention, FusedForwardEqualsTheFormula) {
  ops.FlashForward(shape, qkv, key, Workspace(0, 2, 2), context, lse);
  ExpectClose(context, reference::Context(shape, reference::Probs(shape, qkv_d), qkv_d, key), FusedAttentionTolerance(),
              "context");
  ExpectClose(lse, reference::LogSumExp(shape, qkv_d), 4e-6, "lse");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Attention, BackwardEqualsFiniteDifferences) {
  ops.ProbsForward(shape, qkv, Workspace(block, 1, 1), probs);
  ops.AttentionBackward(shape, probs, qkv, dcontext, key, Workspace(2 * block, 4, 3), dqkv);
  ExpectClose(dqkv, WantedGradient(), kOfRounded, "dqkv");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Attention, FusedBackwardEqualsFiniteDifferences) {
  ops.FlashForward(shape, qkv, key, Workspace(0, 2, 2), context, lse);
  ops.FlashBackward(shape, qkv, context, lse, dcontext, key, Workspace(b * a * s, 4, 3), dqkv);
  ExpectClose(dqkv, WantedGradient(), kOfRounded, "dqkv");
  memory.ExpectGuardsIntact();
}

TEST_P(Bfloat16Attention, RepeatsItsBits) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    ops.ProbsForward(shape, qkv, Workspace(block, 1, 1), probs);
    ops.ContextForward(shape, probs, qkv, key, Workspace(block, 1, 1), context);
    std::vector<float> all(context, context + context_count);
    ops.AttentionBackward(shape, probs, qkv, dcontext, key, Workspace(2 * block, 4, 3), dqkv);
    all.insert(all.end(), dqkv, dqkv + qkv_count);
    ops.FlashForward(shape, qkv, key, Workspace(0, 2, 2), context, lse);
    all.insert(all.end(), context, context + context_count);
    ops.FlashBackward(shape, qkv, context, lse, dcontext, key, Workspace(b * a * s, 4, 3), dqkv);
    all.insert(all.end(), dqkv, dqkv + qkv_count);
    runs.push_back(all);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bfloat16Attention,
                         testing::Values(Case{Shape(1, 1, 1, 1, 1), 0}, Case{Shape(2, 5, 2, 2, 3), 0},
                                         Case{Shape(2, 7, 2, 2, 4), 0.3}, Case{Shape(1, 64, 1, 1, 2), 0},
                                         Case{Shape(1, 70, 1, 1, 2), 0.2}, Case{Shape(1, 130, 1, 1, 1), 0},
                                         Case{Shape(2, 6, 4, 2, 3), 0.3}, Case{Shape(1, 66, 3, 1, 1), 0}),
                         CaseName);

// These shapes have several tiles in both directions. They are too large for a check by finite differences, so the test
// compares with the results in fp32, which must be almost the same.
class LongBfloat16Attention : public Bfloat16Attention {};

TEST_P(LongBfloat16Attention, AgreesWithFloat) {
  const float* wide_qkv = memory.Copy(std::vector<float>(qkv, qkv + qkv_count));
  const float* wide_dcontext = memory.Copy(std::vector<float>(dcontext, dcontext + context_count));
  float *wide_context = memory.Output(context_count), *wide_dqkv = memory.Output(qkv_count);
  backend->FlashForward(shape, wide_qkv, key, nullptr, wide_context, lse);
  backend->FlashBackward(shape, wide_qkv, wide_context, lse, wide_dcontext, key, memory.Output(b * a * s), wide_dqkv);
  const Vector want_context = ToDouble(wide_context, context_count), want_dqkv = ToDouble(wide_dqkv, qkv_count);
  ops.FlashForward(shape, qkv, key, Workspace(0, 2, 2), context, lse);
  ops.FlashBackward(shape, qkv, context, lse, dcontext, key, Workspace(b * a * s, 4, 3), dqkv);
  ExpectClose(context, want_context, FusedAttentionTolerance(), "context of fused attention");
  ExpectClose(dqkv, want_dqkv, kOfRounded, "dqkv of fused attention");
  ops.ProbsForward(shape, qkv, Workspace(block, 1, 1), probs);
  ops.ContextForward(shape, probs, qkv, key, Workspace(block, 1, 1), context);
  ops.AttentionBackward(shape, probs, qkv, dcontext, key, Workspace(2 * block, 4, 3), dqkv);
  ExpectClose(context, want_context, kOfRounded, "context");
  ExpectClose(dqkv, want_dqkv, kOfRounded, "dqkv");
  memory.ExpectGuardsIntact();
}

// Kernels may read and write several elements at once where the tensors allow it. Here they begin one element later than they
// did before, which must not change the results.
TEST_P(LongBfloat16Attention, AnyTensorMayBeginAnywhere) {
  ops.FlashForward(shape, qkv, key, Workspace(0, 2, 2), context, lse);
  ops.FlashBackward(shape, qkv, context, lse, dcontext, key, Workspace(b * a * s, 4, 3), dqkv);
  const auto later = [&](const Bfloat16* values, int64_t count) {
    Bfloat16* const copy = memory.OutputBfloat16(count + 1) + 1;
    std::copy_n(values, count, copy);
    return copy;
  };
  const Bfloat16 *late_qkv = later(qkv, qkv_count), *late_dcontext = later(dcontext, context_count);
  Bfloat16 *late_context = memory.OutputBfloat16(context_count + 1) + 1, *late_dqkv = memory.OutputBfloat16(qkv_count + 1) + 1;
  ops.FlashForward(shape, late_qkv, key, Workspace(0, 2, 2), late_context, lse);
  ops.FlashBackward(shape, late_qkv, late_context, lse, late_dcontext, key, Workspace(b * a * s, 4, 3), late_dqkv);
  ExpectClose(late_context, ToDouble(context, context_count), kFloat, "context");
  ExpectClose(late_dqkv, ToDouble(dqkv, qkv_count), kFloat, "dqkv");
  memory.ExpectGuardsIntact();
}

// The lengths and head sizes are such that there are tiles without hidden scores, parts of tiles at the end of the sequence,
// parts of the columns for which a kernel is made, and dropout with and without a multiple of four keys.
INSTANTIATE_TEST_SUITE_P(Shapes, LongBfloat16Attention,
                         testing::Values(Case{Shape(1, 256, 2, 1, 16), 0}, Case{Shape(1, 321, 3, 1, 4), 0.1},
                                         Case{Shape(1, 100, 2, 2, 24), 0.1}, Case{Shape(1, 100, 2, 1, 72), 0.1},
                                         Case{Shape(1, 70, 1, 1, 128), 0}, Case{Shape(1, 70, 1, 1, 136), 0},
                                         Case{Shape(1, 320, 2, 1, 64), 0.2}, Case{Shape(2, 132, 2, 1, 40), 0.1},
                                         Case{Shape(1, 130, 4, 2, 64), 0.1}, Case{Shape(1, 204, 2, 1, 80), 0.1},
                                         Case{Shape(2, 67, 2, 1, 96), 0.1}, Case{Shape(1, 192, 2, 1, 128), 0.2},
                                         Case{Shape(1, 76, 3, 1, 42), 0.1}),
                         CaseName);

}  // namespace
}  // namespace lynx::worker
