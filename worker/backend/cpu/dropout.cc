// Computes Philox4x32-10 for many counters at once (see dropout.h). The words are the same as those of common/rng.h.
#include "worker/backend/cpu/dropout.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/check.h"
#include "worker/backend/dropout_words.h"

namespace lynx::worker::cpu {

void DrawFactorsPortable(const FactorRange& range, float* factors) {
  for (int64_t i = 0; i < range.blocks; ++i) {
    const uint64_t block = range.first_block + static_cast<uint64_t>(i);
    for (uint32_t word : DropoutWords(range.key, range.sample, block))
      *factors++ = word >= range.threshold ? range.keep_factor : 0.0f;
  }
}

#if defined(__x86_64__)

namespace {

// The four words of four counters. Each word is in the low half of a 64-bit lane, where the widening multiplication needs it,
// and this multiplication leaves both halves of its result in the right place. (If the compiler vectorises a loop over 32-bit
// words, the loop takes almost three times as long, because it moves words into such lanes and back in every round.) The high
// halves hold values without meaning, which no step reads.
struct Words {
  __m256i c0, c1, c2, c3;
};

__attribute__((target("avx2"))) inline void Round(Words& words, __m256i key0, __m256i key1) {
  const __m256i product0 = _mm256_mul_epu32(words.c0, _mm256_set1_epi64x(0xD2511F53));
  const __m256i product1 = _mm256_mul_epu32(words.c2, _mm256_set1_epi64x(0xCD9E8D57));
  words.c0 = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), _mm256_xor_si256(words.c1, key0));
  words.c1 = product1;
  words.c2 = _mm256_xor_si256(_mm256_srli_epi64(product0, 32), _mm256_xor_si256(words.c3, key1));
  words.c3 = product0;
}

// Writes sixteen factors. The four factors of one counter are next to each other.
__attribute__((target("avx2"))) inline void StoreFactors(const Words& words, __m256i threshold, __m256 keep_factor,
                                                         float* factors) {
  const __m256i pair01 = _mm256_blend_epi32(words.c0, _mm256_slli_epi64(words.c1, 32), 0xAA);
  const __m256i pair23 = _mm256_blend_epi32(words.c2, _mm256_slli_epi64(words.c3, 32), 0xAA);
  const __m256i counters02 = _mm256_unpacklo_epi64(pair01, pair23);
  const __m256i counters13 = _mm256_unpackhi_epi64(pair01, pair23);
  const __m256i halves[2] = {_mm256_permute2x128_si256(counters02, counters13, 0x20),
                             _mm256_permute2x128_si256(counters02, counters13, 0x31)};
  for (int half = 0; half < 2; ++half) {
    // compares word >= threshold, as unsigned numbers
    const __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(halves[half], threshold), halves[half]);
    _mm256_storeu_ps(factors + 8 * half, _mm256_and_ps(_mm256_castsi256_ps(kept), keep_factor));
  }
}

}  // namespace

__attribute__((target("avx2"))) void DrawFactorsAvx2(const FactorRange& range, float* factors) {
  __m256i keys0[10], keys1[10];
  for (uint32_t round = 0; round < 10; ++round) {
    keys0[round] = _mm256_set1_epi64x(range.key[0] + round * 0x9E3779B9u);
    keys1[round] = _mm256_set1_epi64x(range.key[1] + round * 0xBB67AE85u);
  }
  const __m256i sample = _mm256_set1_epi64x(static_cast<int64_t>(range.sample));
  const __m256i sample_high = _mm256_srli_epi64(sample, 32);
  const __m256i threshold = _mm256_set1_epi32(static_cast<int>(range.threshold));
  const __m256 keep_factor = _mm256_set1_ps(range.keep_factor);
  for (int64_t i = 0; i < range.blocks; i += kBlocksAtOnce, factors += 4 * kBlocksAtOnce) {
    // Works on two groups of four counters. While one group waits for its multiplications, the other one continues.
    const __m256i first =
        _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(range.first_block) + i), _mm256_set_epi64x(3, 2, 1, 0));
    const __m256i second = _mm256_add_epi64(first, _mm256_set1_epi64x(4));
    Words low{first, _mm256_srli_epi64(first, 32), sample, sample_high};
    Words high{second, _mm256_srli_epi64(second, 32), sample, sample_high};
    for (int round = 0; round < 10; ++round) {
      Round(low, keys0[round], keys1[round]);
      Round(high, keys0[round], keys1[round]);
    }
    StoreFactors(low, threshold, keep_factor, factors);
    StoreFactors(high, threshold, keep_factor, factors + 16);
  }
}

#endif

namespace {

void DrawFactors(const FactorRange& range, float* factors) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return DrawFactorsAvx2(range, factors);
#endif
  DrawFactorsPortable(range, factors);
}

}  // namespace

DropoutStream::DropoutStream(const DropoutKey& key)
    : range_{.key = DropoutPhiloxKey(key),
             .sample = 0,
             .first_block = 0,
             .blocks = 0,
             .threshold = DropoutThreshold(key.rate),
             .keep_factor = static_cast<float>(1.0 / (1.0 - key.rate))},
      first_sample_(key.first_sample) {
  LYNX_CHECK(key.rate >= 0 && key.rate < 1);
}

const float* DropoutStream::Factors(int64_t sample, int64_t first, int64_t count) {
  LYNX_CHECK(count >= 0 && count <= kChunk);
  const int64_t first_block = first / 4;
  range_.sample = static_cast<uint64_t>(first_sample_ + sample);
  range_.first_block = static_cast<uint64_t>(first_block);
  range_.blocks = (first + count + 3) / 4 - first_block;
  DrawFactors(range_, factors_);
  return factors_ + (first - first_block * 4);
}

}  // namespace lynx::worker::cpu
