// DropoutStream gives the dropout decisions that a DropoutKey names. They are drawn again each time they are needed, and never
// stored.
//
// dropout_words.h defines the decisions. Not thread-safe: the object owns the buffer that it draws into.
#ifndef LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
#define LYNX_WORKER_BACKEND_CPU_DROPOUT_H_

#include <array>
#include <cstdint>

#include "worker/backend/backend.h"

namespace lynx::worker::cpu {

// A range of consecutive counters. Each counter gives the factors of four elements.
struct FactorRange {
  std::array<uint32_t, 2> key;
  uint64_t sample;  // the number of the sample in the global batch
  uint64_t first_block;
  int64_t blocks;
  uint32_t threshold;
  float keep_factor;
};
// These functions write factors (blocks, 4). Both give the same bits; the machine decides which one is used. The AVX2 version
// writes up to the next multiple of kBlocksAtOnce blocks, and exists only on x86.
inline constexpr int64_t kBlocksAtOnce = 8;
void DrawFactorsPortable(const FactorRange& range, float* factors);
void DrawFactorsAvx2(const FactorRange& range, float* factors);

class DropoutStream {
 public:
  // The largest number of elements of one draw. Their factors take 4 KiB, which is little compared with the tensors.
  static constexpr int64_t kChunk = 1024;

  explicit DropoutStream(const DropoutKey& key);

  bool identity() const { return range_.threshold == 0; }
  // Returns the factors, 0 or 1/(1-rate), of the elements [first, first + count) of sample `sample` of the microbatch. count <=
  // kChunk. The factors are valid until the next call.
  const float* Factors(int64_t sample, int64_t first, int64_t count);

 private:
  FactorRange range_;  // the range of the latest draw
  int64_t first_sample_;
  // The range may begin and end within a block of four, and kBlocksAtOnce blocks are drawn at a time. The array has room for
  // both.
  alignas(64) float factors_[kChunk + 4 * (1 + kBlocksAtOnce)];
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
