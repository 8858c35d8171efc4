// Does the work of a warp's tensor cores, lane by lane. Each lane gives the values that it holds, and computes or takes its own
// results.
#include <algorithm>
#include <array>

#include "common/bfloat16.h"
#include "common/check.h"
#include "cuda_runtime.h"

namespace lynx::worker::cuda_on_host {
namespace {

constexpr int kLanes = 32;
using Words = std::array<uint64_t, kLanes>;

// Gives two words to the other lanes. Returns the words of all lanes.
Words Share(uint32_t low, uint32_t high) {
  Words words;
  std::copy_n(Exchange(uint64_t{high} << 32 | low), kLanes, words.begin());
  return words;
}

// Returns half number `half` of register number `place`; `words` holds two registers.
float Half(uint64_t words, int place, int half) {
  return Bfloat16(ValueOf<Bfloat16>(words >> (32 * place + 16 * half) & 0xffff));
}

// `line`: the number of a row of left or of a column of right, which have 16 elements. Returns the lane that holds element k.
int LaneOf(int line, int k) { return line % 8 * 4 + k % 8 / 2; }

}  // namespace

void MultiplyAdd(const uint32_t left[4], const uint32_t right[2], float sums[4]) {
  const Words lefts[] = {Share(left[0], left[1]), Share(left[2], left[3])};  // the columns below 8, and the columns from 8 on
  const Words rights = Share(right[0], right[1]);
  const int lane = Lane();
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (int k = 0; k < 16; ++k) {
      sums[e] += Half(lefts[k / 8][static_cast<size_t>(LaneOf(row, k))], row / 8, k % 2) *
                 Half(rights[static_cast<size_t>(LaneOf(column, k))], k / 8, k % 2);
    }
  }
}

void LoadMatrices(const void* row, int count, bool transposed, uint32_t* words) {
  const uint64_t* const addresses = Exchange(WordOf(row));
  const auto element = [&](int matrix, int r, int c) {
    const uint64_t address = addresses[8 * matrix + r];
    LYNX_CHECK(address % 16 == 0);
    return uint32_t{ValueOf<const uint16_t*>(address)[c]};
  };
  const int lane = Lane();
  for (int matrix = 0; matrix < count; ++matrix) {
    const int line = lane / 4, pair = lane % 4 * 2;
    words[matrix] = transposed ? element(matrix, pair, line) | element(matrix, pair + 1, line) << 16
                               : element(matrix, line, pair) | element(matrix, line, pair + 1) << 16;
  }
}

}  // namespace lynx::worker::cuda_on_host
