// Philox4x32-10, the counter-based random number generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC'11). It gives four 32-bit words as a pure function of a 128-bit counter and a 64-bit key. The same function gives dropout
// masks (which are equal when they are recomputed), initial weights (equal for every parallel layout) and the order of samples.
// Pure; thread-safe.
#ifndef LYNX_COMMON_RNG_H_
#define LYNX_COMMON_RNG_H_

#include <array>
#include <cstdint>

namespace lynx {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A function that mixes 64 bits (the finaliser of SplitMix64). It derives keys from small integers.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace lynx

#endif  // LYNX_COMMON_RNG_H_
