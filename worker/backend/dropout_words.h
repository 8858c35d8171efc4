// The random words that decide which elements dropout keeps. Every backend uses these functions, so all devices draw the same
// decisions.
//
// Element e of sample i has word e % 4 of Philox(counter = (e / 4, i), key). Both parts of the counter have 64 bits, low half
// first. An element is kept if its word is at least the threshold; it is then multiplied by 1 / (1 - rate). Pure.
#ifndef LYNX_WORKER_BACKEND_DROPOUT_WORDS_H_
#define LYNX_WORKER_BACKEND_DROPOUT_WORDS_H_

#include <array>
#include <cstdint>

#include "common/rng.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

// Returns the generator's key for one stream of decisions.
constexpr std::array<uint32_t, 2> DropoutPhiloxKey(const DropoutKey& key) {
  uint64_t mixed = Mix64(key.seed);
  mixed = Mix64(mixed ^ static_cast<uint64_t>(key.step));
  mixed = Mix64(mixed ^ static_cast<uint64_t>(static_cast<int64_t>(key.layer)));
  mixed = Mix64(mixed ^ static_cast<uint64_t>(static_cast<int64_t>(key.op)));
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

// Returns the threshold: an element is dropped if its word is below it. rate in [0, 1)
constexpr uint32_t DropoutThreshold(double rate) { return static_cast<uint32_t>(rate * 4294967296.0); }

// Returns the words of the elements [4 block, 4 block + 4) of a sample. `sample` is counted in the global batch.
constexpr PhiloxBlock DropoutWords(const std::array<uint32_t, 2>& key, uint64_t sample, uint64_t block) {
  return Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(sample),
                 static_cast<uint32_t>(sample >> 32)},
                key);
}

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_DROPOUT_WORDS_H_
