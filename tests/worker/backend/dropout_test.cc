#include "worker/backend/cpu/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/backend/reference.h"
#include "tests/worker/backend/test_memory.h"

namespace lynx::worker {
namespace {

constexpr DropoutKey kKey{0.1, 1234, 17, 3, 9, 1000};

TEST(Dropout, FactorsEqualTheScalarGenerator) {
  cpu::DropoutStream stream(kKey);
  // The ranges begin at every remainder modulo four, and one range crosses block number 2^32. The counts include the smallest
  // and the largest possible count.
  for (int64_t first : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4097}, (int64_t{1} << 34) - 9}) {
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{30}, cpu::DropoutStream::kChunk}) {
      for (int64_t sample : {0, 5}) {
        const float* factors = stream.Factors(sample, first, count);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(factors[i], static_cast<float>(reference::DropoutFactor(kKey, sample, first + i)))
              << "sample " << sample << " element " << first + i;
        }
      }
    }
  }
}

TEST(Dropout, BothWaysToDrawAgree) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this machine has no AVX2, so there is one way only";
  constexpr int64_t kBlocks = 37;
  for (uint64_t first_block : {uint64_t{0}, uint64_t{12345}, (uint64_t{1} << 32) - 20, (uint64_t{1} << 63) + 1}) {
    const cpu::FactorRange range{.key = {0xFFFFFFFF, 0x12345678},
                                 .sample = 0xABCDEF0123456789,
                                 .first_block = first_block,
                                 .blocks = kBlocks,
                                 .threshold = 0x80000000,
                                 .keep_factor = 2};
    std::vector<float> portable(4 * kBlocks), avx2(4 * (kBlocks + cpu::kBlocksAtOnce));
    cpu::DrawFactorsPortable(range, portable.data());
    cpu::DrawFactorsAvx2(range, avx2.data());
    avx2.resize(portable.size());
    EXPECT_EQ(portable, avx2) << "first block " << first_block;
  }
#else
  GTEST_SKIP() << "there is one way only on this architecture";
#endif
}

TEST(Dropout, KeepsTheRightShare) {
  constexpr int64_t kElements = 1 << 20;
  for (double rate : {0.1, 0.5, 0.9}) {
    DropoutKey key = kKey;
    key.rate = rate;
    cpu::DropoutStream stream(key);
    int64_t kept = 0;
    for (int64_t at = 0; at < kElements; at += cpu::DropoutStream::kChunk) {
      const float* factors = stream.Factors(0, at, cpu::DropoutStream::kChunk);
      for (int64_t i = 0; i < cpu::DropoutStream::kChunk; ++i) kept += factors[i] != 0 ? 1 : 0;
    }
    // The tolerance is five standard deviations. The seed is fixed, so the test always passes or always fails.
    const double deviation = std::sqrt(kElements * rate * (1 - rate));
    EXPECT_NEAR(static_cast<double>(kept), kElements * (1 - rate), 5 * deviation);
  }
}

TEST(Dropout, EveryPartOfTheKeyMatters) {
  const auto mask = [](const DropoutKey& key) {
    cpu::DropoutStream stream(key);
    const float* factors = stream.Factors(0, 0, 256);
    return std::vector<float>(factors, factors + 256);
  };
  DropoutKey seed = kKey, step = kKey, layer = kKey, op = kKey, sample = kKey;
  ++seed.seed;
  ++step.step;
  ++layer.layer;
  ++op.op;
  ++sample.first_sample;
  const std::vector<float> base = mask(kKey);
  for (const DropoutKey& other : {seed, step, layer, op, sample}) EXPECT_NE(mask(other), base);
  EXPECT_EQ(mask(kKey), base);
}

TEST(Dropout, MicrobatchesDrawAsOneBatchWould) {
  constexpr int64_t kSeq = 3, kHidden = 1500;  // a row is longer than DropoutStream::kChunk, so it needs several draws
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  TestMemory memory;
  const float* ones = memory.Constant(4 * kSeq * kHidden, 1);
  float* whole = memory.Output(4 * kSeq * kHidden);
  backend->BiasDropoutAddBackward(ones, kSeq, 4 * kSeq, kHidden, kKey, whole);
  float* part = memory.Output(2 * kSeq * kHidden);
  DropoutKey second_half = kKey;
  second_half.first_sample += 2;
  backend->BiasDropoutAddBackward(ones, kSeq, 2 * kSeq, kHidden, second_half, part);
  for (int64_t i = 0; i < 2 * kSeq * kHidden; ++i) ASSERT_EQ(part[i], whole[2 * kSeq * kHidden + i]);
  memory.ExpectGuardsIntact();
}

}  // namespace
}  // namespace lynx::worker
