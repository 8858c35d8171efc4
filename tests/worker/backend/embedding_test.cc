#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lynx::worker
