// Philox4x32-10 over many counters at once; see dropout.h and common/rng.h, whose words it equals.
#include "worker/backend/cpu/dropout.h"

#include "common/check.h"
#include "common/rng.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

// factors (blocks, 4) for counters (first_block + i, sample).
LYNX_SIMD void Draw(uint32_t key0, uint32_t key1, uint64_t sample, uint64_t first_block, int64_t blocks,
                    uint32_t threshold, float keep_factor, float* factors) {
  const auto sample_low = static_cast<uint32_t>(sample);
  const auto sample_high = static_cast<uint32_t>(sample >> 32);
#pragma omp simd
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t block = first_block + static_cast<uint64_t>(i);
    uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
    uint32_t c2 = sample_low, c3 = sample_high;
    uint32_t k0 = key0, k1 = key1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    factors[4 * i] = c0 >= threshold ? keep_factor : 0.0f;
    factors[4 * i + 1] = c1 >= threshold ? keep_factor : 0.0f;
    factors[4 * i + 2] = c2 >= threshold ? keep_factor : 0.0f;
    factors[4 * i + 3] = c3 >= threshold ? keep_factor : 0.0f;
  }
}

}  // namespace

std::array<uint32_t, 2> DropoutPhiloxKey(const DropoutKey& key) {
  uint64_t mixed = Mix64(key.seed);
  mixed = Mix64(mixed ^ static_cast<uint64_t>(key.step));
  mixed = Mix64(mixed ^ static_cast<uint64_t>(static_cast<int64_t>(key.layer)));
  mixed = Mix64(mixed ^ static_cast<uint64_t>(static_cast<int64_t>(key.op)));
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

uint32_t DropoutThreshold(double rate) { return static_cast<uint32_t>(rate * 4294967296.0); }

DropoutStream::DropoutStream(const DropoutKey& key)
    : key_(DropoutPhiloxKey(key)),
      threshold_(DropoutThreshold(key.rate)),
      keep_factor_(static_cast<float>(1.0 / (1.0 - key.rate))),
      first_sample_(key.first_sample) {
  LYNX_CHECK(key.rate >= 0 && key.rate < 1);
}

const float* DropoutStream::Factors(int64_t sample, int64_t first, int64_t count) {
  LYNX_CHECK(count >= 0 && count <= kChunk);
  const int64_t first_block = first / 4;
  const int64_t end_block = (first + count + 3) / 4;
  Draw(key_[0], key_[1], static_cast<uint64_t>(first_sample_ + sample), static_cast<uint64_t>(first_block),
       end_block - first_block, threshold_, keep_factor_, factors_);
  return factors_ + (first - first_block * 4);
}

}  // namespace lynx::cpu
