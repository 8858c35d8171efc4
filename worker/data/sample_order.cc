#include "worker/data/sample_order.h"

#include <bit>

#include "common/check.h"
#include "common/rng.h"

namespace lynx::worker {
namespace {

// Four rounds give a good permutation of a large domain. A small domain, in which each half of a number has only one or two
// bits, needs more.
constexpr uint32_t kRounds = 8;
// Makes this random stream differ from other streams that use the same seed.
constexpr uint64_t kStream = 0x73616D706C65ull;  // "sample"

uint64_t Feistel(uint64_t x, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = x >> half_bits;
  uint64_t right = x & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock block =
        Philox({static_cast<uint32_t>(right), round, 0, 0}, {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    const uint64_t next = left ^ (block[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

int64_t SampleAt(int64_t position, int64_t samples, int64_t epoch, uint64_t seed) {
  LYNX_CHECK(samples >= 1 && samples <= int64_t{1} << 62);
  LYNX_CHECK(position >= 0 && position < samples && epoch >= 0);
  if (samples == 1) return 0;
  const int half_bits = (std::bit_width(static_cast<uint64_t>(samples - 1)) + 1) / 2;
  const uint64_t key = Mix64(Mix64(seed ^ kStream) ^ static_cast<uint64_t>(epoch));
  auto x = static_cast<uint64_t>(position);
  // The loop ends, because `position` is on a cycle of the larger permutation. At the latest the cycle comes back to
  // `position`, which is below `samples`.
  do {
    x = Feistel(x, half_bits, key);
  } while (x >= static_cast<uint64_t>(samples));
  return static_cast<int64_t>(x);
}

}  // namespace lynx::worker
