#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/backend/test_backend.h"
#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

TEST(Embedding, ShardsAddUpToTheWholeTable) {
  constexpr int64_t kTokens = 50, kHidden = 9, kRows = 12;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  const int32_t* tokens = memory.Tokens(kTokens, kRows, 1);
  const float* table = memory.Random(kRows * kHidden, 2);
  std::vector<float> sum(kTokens * kHidden);
  for (const auto& [first, rows] : {std::pair<int32_t, int64_t>{0, 5}, {5, 7}}) {
    float* out = memory.Output(kTokens * kHidden);
    backend->EmbeddingForward(tokens, table + first * kHidden, first, kTokens, kHidden, rows, out);
    for (int64_t i = 0; i < kTokens * kHidden; ++i) {
      const bool here = tokens[i / kHidden] >= first && tokens[i / kHidden] < first + rows;
      if (!here) {
        ASSERT_EQ(out[i], 0.0f);
      }
      sum[i] += out[i];
    }
  }
  for (int64_t i = 0; i < kTokens * kHidden; ++i) {
    ASSERT_EQ(sum[i], table[tokens[i / kHidden] * kHidden + i % kHidden]);
  }
  memory.ExpectGuardsIntact();
}

TEST(Embedding, BackwardAddsEachTokensGradientToItsRow) {
  constexpr int64_t kTokens = 50, kHidden = 9, kRows = 7;
  constexpr int32_t kFirstRow = 5;
  std::unique_ptr<Backend> backend = MakeTestBackend();
  TestMemory memory;
  // Some tokens are below the shard's rows, some are above.
  const int32_t* tokens = memory.Tokens(kTokens, kFirstRow + kRows + 3, 1);
  const float* dout = memory.Random(kTokens * kHidden, 2);
  float* dtable = memory.Constant(kRows * kHidden, 0.5f);
  backend->EmbeddingBackward(tokens, dout, kFirstRow, kTokens, kHidden, kRows, dtable);
  std::vector<double> want(kRows * kHidden, 0.5);
  for (int64_t i = 0; i < kTokens * kHidden; ++i) {
    const int64_t row = tokens[i / kHidden] - kFirstRow;
    if (row >= 0 && row < kRows) want[row * kHidden + i % kHidden] += dout[i];
  }
  ExpectClose(dtable, want, 1e-6, "dtable");
  memory.ExpectGuardsIntact();
}

struct Repeated {
  int64_t tokens, hidden, rows;
  int32_t end;  // tokens are in [0, end)
};

// The rows of equal tokens are added one after another, in the order of tokens, so the sums are known to the bit. A token may
// repeat thousands of times, or all tokens may be of another shard.
class EmbeddingSums : public testing::TestWithParam<Repeated> {
 protected:
  template <class T>
  void ExpectSums() {
    const auto [n, h, rows, end] = GetParam();
    constexpr int32_t kFirstRow = 5;
    std::unique_ptr<Backend> backend = MakeTestBackend();
    for (const int64_t shift : {0, 1}) {
      TestMemory memory;
      const int32_t* const tokens = memory.Tokens(n, end, 1);
      const T* const dout = memory.RandomAt<T>(shift, n * h, 2);
      float* const dtable = memory.RandomAt<float>(shift, rows * h, 3);
      std::vector<float> want(dtable, dtable + rows * h);
      for (int64_t i = 0; i < n * h; ++i) {
        const int64_t row = tokens[i / h] - kFirstRow;
        if (row >= 0 && row < rows) want[row * h + i % h] += dout[i];
      }
      OpsOf<T>(*backend).EmbeddingBackward(tokens, dout, kFirstRow, n, h, rows, dtable);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), dtable)) << "from element " << shift;
      memory.ExpectGuardsIntact();
    }
  }
};

TEST_P(EmbeddingSums, OfFloatsAreAddedInTheOrderOfTokens) { ExpectSums<float>(); }
TEST_P(EmbeddingSums, OfBfloat16AreAddedInTheOrderOfTokens) { ExpectSums<Bfloat16>(); }

INSTANTIATE_TEST_SUITE_P(Shapes, EmbeddingSums,
                         testing::Values(Repeated{1, 8, 3, 8}, Repeated{700, 8, 4, 12}, Repeated{1024, 24, 900, 1000},
                                         Repeated{1025, 9, 40, 40}, Repeated{3000, 16, 500, 520}, Repeated{5200, 8, 3, 7},
                                         Repeated{3000, 16, 7, 5}, Repeated{40, 1500, 6, 9}),
                         [](const auto& info) {
                           return "tokens" + std::to_string(info.param.tokens) + "hidden" + std::to_string(info.param.hidden) +
                                  "rows" + std::to_string(info.param.rows);
                         });

}  // namespace
}  // namespace lynx::worker
