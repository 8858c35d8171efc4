// DropoutStream: the dropout decisions that a DropoutKey names, drawn anew wherever they are needed and never stored.
//
// Which they are is said in dropout_words.h. Not thread-safe: it owns the buffer that it draws into.
#ifndef LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
#define LYNX_WORKER_BACKEND_CPU_DROPOUT_H_

#include <array>
#include <cstdint>

#include "worker/backend/backend.h"

namespace lynx::cpu {

// Factors of the elements of consecutive counters, four each.
struct FactorRange {
  std::array<uint32_t, 2> key;
  uint64_t sample;  // in the global batch
  uint64_t first_block;
  int64_t blocks;
  uint32_t threshold;
  float keep_factor;
};
// factors (blocks, 4). Which of the two runs depends on the machine; they give the same bits. The second writes up to
// the next multiple of kBlocksAtOnce blocks, and exists on x86 only.
inline constexpr int64_t kBlocksAtOnce = 8;
void DrawFactorsPortable(const FactorRange& range, float* factors);
void DrawFactorsAvx2(const FactorRange& range, float* factors);

class DropoutStream {
 public:
  static constexpr int64_t kChunk = 1024;  // elements per draw: 4 KiB, small beside the tensors it is applied to

  explicit DropoutStream(const DropoutKey& key);

  bool identity() const { return range_.threshold == 0; }
  // Factors, 0 or 1/(1-rate), of elements [first, first + count) of the microbatch's sample `sample`. count <=
  // kChunk. Valid until the next call.
  const float* Factors(int64_t sample, int64_t first, int64_t count);

 private:
  FactorRange range_;  // of the latest draw
  int64_t first_sample_;
  // A range may begin and end within a block of four, and blocks are drawn kBlocksAtOnce at a time.
  alignas(64) float factors_[kChunk + 4 * (1 + kBlocksAtOnce)];
};

}  // namespace lynx::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
