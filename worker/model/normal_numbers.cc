#include "worker/model/normal_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "common/cores.h"
#include "common/rng.h"

namespace lynx::worker {
namespace {

// Returns four standard normal numbers from one Philox block, computed in double by the method of Box and Muller ("A note on
// the generation of random normal deviates", 1958). u1 is in (0, 1], so its logarithm is finite.
std::array<double, 4> NormalBlock(uint64_t key, uint64_t block) {
  const PhiloxBlock words = Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                                   {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  std::array<double, 4> out;
  for (size_t i = 0; i < 4; i += 2) {
    const double u1 = (static_cast<double>(words[i]) + 1.0) * 0x1p-32;
    const double u2 = static_cast<double>(words[i + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u1));
    const double angle = 2.0 * std::numbers::pi * u2;
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
  return out;
}

// The smallest number of normal numbers for which a thread is worth its start: a few milliseconds of work.
constexpr int64_t kNumbersOfThread = int64_t{1} << 18;

}  // namespace

void FillNormal(uint64_t key, double deviation, int64_t first, std::span<float> out) {
  const auto begin = static_cast<uint64_t>(first);
  size_t i = 0;
  while (i < out.size()) {
    const uint64_t index = begin + i;
    const std::array<double, 4> block = NormalBlock(key, index / 4);
    for (uint64_t j = index % 4; j < 4 && i < out.size(); ++j, ++i) {
      out[i] = static_cast<float>(deviation * block[j]);
    }
  }
}

void InParts(int64_t rows, int64_t numbers, const std::function<void(int64_t, int64_t)>& body) {
  const auto cores = static_cast<int64_t>(AvailableCores().size());
  const int64_t parts = std::max<int64_t>(1, std::min({numbers / kNumbersOfThread, cores, rows}));
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back(body, rows * part / parts, rows * (part + 1) / parts);
  }
  body(0, rows / parts);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lynx::worker
