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

// A vocabulary of `vocab` words, divided into t shards of ceil(vocab / t) columns each. The last shards may have padding or be
// only padding.
struct Shape {
  int64_t t, vocab;
};

class Loss : public testing::TestWithParam<Shape> {
 protected:
  const int64_t t = GetParam().t, vocab = GetParam().vocab, n = 6, columns = (vocab + t - 1) / t;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  int32_t* targets = memory.Tokens(n, static_cast<int32_t>(vocab), 1);
  const Vector all_logits = ToDouble(memory.Random(n * vocab, 2, 6), n* vocab);
  float* stats = memory.Output(t * n * 3);
  std::vector<float*> shards;

  int64_t Valid(int64_t shard) const { return std::clamp(vocab - shard * columns, int64_t{0}, columns); }
  int32_t FirstRow(int64_t shard) const { return static_cast<int32_t>(shard * columns); }

  void SetUp() override {
    targets[n / 2] = targets[n - 1] = kNoTarget;
    for (int64_t shard = 0; shard < t; ++shard) {
      // The padding columns get large logits, which must have no effect.
      std::vector<float> logits(n * columns, 50.0f);
      for (int64_t token = 0; token < n; ++token) {
        for (int64_t i = 0; i < Valid(shard); ++i) {
          logits[token * columns + i] = static_cast<float>(all_logits[token * vocab + shard * columns + i]);
        }
      }
      shards.push_back(memory.Copy(logits));
      backend->LossStats(shards[shard], targets, FirstRow(shard), n, columns, Valid(shard), stats + shard * n * 3);
    }
  }
};

TEST_P(Loss, ForwardIsTheCrossEntropy) {
  const double want = reference::CrossEntropy(all_logits, targets, n, vocab);
  double* const sum = memory.Double(0);
  backend->LossForward(stats, t, n, sum);
  const double loss = *sum;
  EXPECT_NEAR(loss, want, 1e-6 * want);
  backend->LossForward(stats, t, n, sum);
  EXPECT_EQ(*sum, loss + loss) << "it adds";
  memory.ExpectGuardsIntact();
}

TEST_P(Loss, BackwardEqualsFiniteDifferences) {
  constexpr double kScale = 0.125;
  const Vector want =
      reference::Gradient([&](const Vector& v) { return kScale * reference::CrossEntropy(v, targets, n, vocab); }, all_logits);
  for (int64_t shard = 0; shard < t; ++shard) {
    backend->LossBackward(stats, targets, FirstRow(shard), t, n, columns, Valid(shard), kScale, shards[shard], shards[shard]);
    for (int64_t token = 0; token < n; ++token) {
      for (int64_t i = 0; i < columns; ++i) {
        const float got = shards[shard][token * columns + i];
        if (i >= Valid(shard)) {
          ASSERT_EQ(got, 0.0f) << "padding column " << i << " of shard " << shard;
        } else {
          ASSERT_NEAR(got, want[token * vocab + shard * columns + i], 1e-7) << "token " << token << " column " << i;
        }
      }
    }
  }
  memory.ExpectGuardsIntact();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Loss, testing::Values(Shape{1, 1}, Shape{1, 37}, Shape{2, 37}, Shape{4, 40}, Shape{8, 9}),
                         [](const auto& info) {
                           return "t" + std::to_string(info.param.t) + "vocab" + std::to_string(info.param.vocab);
                         });

// Rows so long that each thread of a device reads several packs. Some rows begin at places that do not fit packs.
struct LongRows {
  int64_t v, valid;
};

class LossRows : public testing::TestWithParam<LongRows> {
 protected:
  const int64_t n = 5, v = GetParam().v, valid = GetParam().valid;
  static constexpr int32_t kFirstRow = 100;
  static constexpr double kScale = 0.125;
  std::unique_ptr<Backend> backend = MakeTestBackend();

  // Returns max, sum and the target's logit of each token.
  Vector Stats(const float* logits, const int32_t* targets) const {
    Vector stats(n * 3);
    for (int64_t token = 0; token < n; ++token) {
      const float* const row = logits + token * v;
      const double max = *std::max_element(row, row + valid);
      double sum = 0;
      for (int64_t i = 0; i < valid; ++i) sum += std::exp(row[i] - max);
      const int64_t target = targets[token] - kFirstRow;
      stats[token * 3] = max;
      stats[token * 3 + 1] = targets[token] == kNoTarget ? 0 : sum;
      stats[token * 3 + 2] = target >= 0 && target < valid ? row[target] : 0;
    }
    return stats;
  }
  Vector Gradient(const float* logits, const int32_t* targets, const Vector& stats) const {
    Vector gradient(n * v, 0);
    for (int64_t token = 0; token < n; ++token) {
      for (int64_t i = 0; i < valid && targets[token] != kNoTarget; ++i) {
        gradient[token * v + i] = kScale * (std::exp(logits[token * v + i] - stats[token * 3]) / stats[token * 3 + 1] -
                                            (targets[token] == kFirstRow + i ? 1 : 0));
      }
    }
    return gradient;
  }

  template <class T>
  void ExpectGradients() {
    std::vector<double> first;
    for (const int64_t shift : {0, 1, 2}) {
      TestMemory memory;
      float* const logits = memory.RandomAt<float>(shift, n * v, 1, 6);
      int32_t* const targets = memory.Tokens(n, static_cast<int32_t>(valid), 2);
      for (int64_t token = 0; token < n; ++token) targets[token] += kFirstRow;
      targets[1] = kNoTarget;
      targets[2] = kFirstRow + static_cast<int32_t>(valid) - 1;
      targets[3] = kFirstRow + static_cast<int32_t>(valid);  // a row of another shard
      float* const stats = memory.Output(n * 3);
      backend->LossStats(logits, targets, kFirstRow, n, v, valid, stats);
      const Vector want = Stats(logits, targets);
      ExpectClose(stats, want, 2e-6, "stats");
      T* const apart = memory.RandomAt<T>(shift, n * v, 3);
      OpsOf<T>(*backend).LossBackward(stats, targets, kFirstRow, 1, n, v, valid, kScale, logits, apart);
      ExpectClose(apart, Gradient(logits, targets, want), 2e-6, "dlogits");
      const std::vector<double> got = ToDouble(apart, n * v);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << "other bits if the logits begin at element " << shift;
      auto* const in_place = reinterpret_cast<T*>(logits);
      OpsOf<T>(*backend).LossBackward(stats, targets, kFirstRow, 1, n, v, valid, kScale, logits, in_place);
      EXPECT_TRUE(ToDouble(in_place, n * v) == got) << "in place, from element " << shift;
      memory.ExpectGuardsIntact();
    }
  }
};

TEST_P(LossRows, GradientsOfFloatsEqualTheFormula) { ExpectGradients<float>(); }
TEST_P(LossRows, GradientsOfBfloat16EqualTheFormula) { ExpectGradients<Bfloat16>(); }

INSTANTIATE_TEST_SUITE_P(Shapes, LossRows,
                         testing::Values(LongRows{3, 2}, LongRows{4096, 4096}, LongRows{4099, 4097}, LongRows{9001, 9001},
                                         LongRows{9000, 8191}),
                         [](const auto& info) {
                           return "v" + std::to_string(info.param.v) + "valid" + std::to_string(info.param.valid);
                         });

// A thread may read only logits of minus infinity. They add nothing to the sum. If a whole row has no other logits, its loss is
// not a number.
TEST(LossRange, MinusInfinityCountsNothing) {
  constexpr int64_t kColumns = 4100;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  std::vector<float> values(2 * kColumns, -INFINITY);
  values[1] = 1;
  values[kColumns - 1] = 2;
  const float* logits = memory.Copy(values);
  const int32_t* targets = memory.Tokens(2, 1, 1);
  float* stats = memory.Output(6);
  backend->LossStats(logits, targets, 0, 2, kColumns, kColumns, stats);
  EXPECT_EQ(stats[0], 2.0f);
  EXPECT_NEAR(stats[1], 1 + std::exp(-1.0), 1e-6);
  double* const sum = memory.Double(0);
  backend->LossForward(stats + 3, 1, 1, sum);
  EXPECT_TRUE(std::isnan(*sum)) << *sum;
}

// A loss that is not a number must show in the sum, even if other tokens have no target.
TEST(LossRange, NotANumberStaysInTheSum) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* logits = memory.Copy({1, std::nanf(""), 1, 2});
  int32_t* targets = memory.Tokens(2, 1, 1);
  targets[1] = kNoTarget;
  float* stats = memory.Output(6);
  backend->LossStats(logits, targets, 0, 2, 2, 2, stats);
  double* const sum = memory.Double(0);
  backend->LossForward(stats, 1, 2, sum);
  EXPECT_TRUE(std::isnan(*sum));
}

TEST(LossRange, LargeLogitsNeitherOverflowNorVanish) {
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  float* logits = memory.Copy({1000, 999, -1000});
  auto* targets = memory.Tokens(1, 1, 1);  // one target, which is word 0
  float* stats = memory.Output(3);
  backend->LossStats(logits, targets, 0, 1, 3, 3, stats);
  double* const sum = memory.Double(0);
  backend->LossForward(stats, 1, 1, sum);
  EXPECT_NEAR(*sum, std::log1p(std::exp(-1.0)), 1e-6);
}

}  // namespace
}  // namespace lynx::worker
