// DropoutStream: the dropout decisions that a DropoutKey names, drawn anew wherever they are needed and never stored.
//
// Element e of sample i has word e % 4 of Philox(counter = (e / 4, i), key = Mix64 over seed, step, layer and op), both
// counter parts 64 bits, low half first. It is kept when the word is at least rate * 2^32. Not thread-safe: it owns the
// buffer that it draws into.
#ifndef LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
#define LYNX_WORKER_BACKEND_CPU_DROPOUT_H_

#include <array>
#include <cstdint>

#include "worker/backend/backend.h"

namespace lynx::cpu {

// The generator's key for one stream.
std::array<uint32_t, 2> DropoutPhiloxKey(const DropoutKey& key);
// A word below this drops its element.
uint32_t DropoutThreshold(double rate);

class DropoutStream {
 public:
  static constexpr int64_t kChunk = 1024;  // elements per draw: 4 KiB, small beside the tensors it is applied to

  explicit DropoutStream(const DropoutKey& key);

  bool identity() const { return threshold_ == 0; }
  // Factors, 0 or 1/(1-rate), of elements [first, first + count) of the microbatch's sample `sample`. count <= kChunk.
  // Valid until the next call.
  const float* Factors(int64_t sample, int64_t first, int64_t count);

 private:
  std::array<uint32_t, 2> key_;
  uint32_t threshold_;
  float keep_factor_;
  int64_t first_sample_;
  alignas(64) float factors_[kChunk + 8];  // whole blocks of four, at either end of the range
};

}  // namespace lynx::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_DROPOUT_H_
