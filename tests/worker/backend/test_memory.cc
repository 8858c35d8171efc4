#include "tests/worker/backend/test_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/rng.h"

namespace lynx::worker {
namespace {

constexpr int64_t kAlignFloats = 256 / sizeof(float);
constexpr int64_t kMemoryFloats = int64_t{1} << 20;
constexpr float kGuard = -7.25e33f;

}  // namespace

TestMemory::TestMemory(int64_t skip) : memory_(TestFloatsOf(kMemoryFloats)) {
  std::fill_n(memory_.get(), kMemoryFloats, kGuard);
  const auto address = reinterpret_cast<uintptr_t>(memory_.get()) / sizeof(float);
  next_ = (kAlignFloats - static_cast<int64_t>(address % kAlignFloats)) % kAlignFloats + skip * kAlignFloats;
}

float* TestMemory::Place(int64_t count) {
  // Before each buffer lies a guard of at least one whole alignment unit.
  const int64_t first = next_ + kAlignFloats;
  next_ = first + (count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  LYNX_CHECK(next_ + kAlignFloats <= kMemoryFloats);
  buffers_.push_back({first, count});
  return memory_.get() + first;
}

float* TestMemory::Random(int64_t count, uint64_t seed, float scale) { return Copy(RandomFloats(count, seed, scale)); }

float* TestMemory::Constant(int64_t count, float value) {
  float* data = Place(count);
  std::fill_n(data, count, value);
  return data;
}

float* TestMemory::Copy(const std::vector<float>& values) {
  float* data = Place(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), data);
  return data;
}

Bfloat16* TestMemory::RandomBfloat16(int64_t count, uint64_t seed, float scale) {
  return CopyBfloat16(RandomFloats(count, seed, scale));
}

Bfloat16* TestMemory::OutputBfloat16(int64_t count) {
  return CopyBfloat16(std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN()));
}

Bfloat16* TestMemory::CopyBfloat16(const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  auto* data = reinterpret_cast<Bfloat16*>(Place((count + 1) / 2));
  std::copy(values.begin(), values.end(), data);
  if (count % 2 != 0) odd_ends_.push_back(data + count);
  return data;
}

double* TestMemory::Double(double value) {
  auto* data = reinterpret_cast<double*>(Place(sizeof(double) / sizeof(float)));
  *data = value;
  return data;
}

int32_t* TestMemory::Tokens(int64_t count, int32_t end, uint64_t seed) {
  auto* data = reinterpret_cast<int32_t*>(Place(count));
  for (int64_t i = 0; i < count; ++i) {
    data[i] = static_cast<int32_t>(Mix64(seed * 1000003 + static_cast<uint64_t>(i)) % static_cast<uint64_t>(end));
  }
  return data;
}

void TestMemory::ExpectGuardsIntact() const {
  constexpr auto kGuardEnd = static_cast<uint16_t>(std::bit_cast<uint32_t>(kGuard) >> 16);
  for (const Bfloat16* end : odd_ends_) EXPECT_EQ(end->bits, kGuardEnd) << "after an odd number of elements";
  int64_t guard = 0;  // the start of the guard that lies before the next buffer
  for (size_t i = 0; i <= buffers_.size(); ++i) {
    const int64_t guard_end = i < buffers_.size() ? buffers_[i].first : kMemoryFloats;
    for (int64_t at = guard; at < guard_end; ++at) {
      if (std::bit_cast<uint32_t>(memory_[at]) != std::bit_cast<uint32_t>(kGuard)) {
        ADD_FAILURE() << "float " << at - guard << " after buffer " << static_cast<int64_t>(i) - 1 << " was overwritten with "
                      << memory_[at];
        return;
      }
    }
    if (i < buffers_.size()) guard = buffers_[i].first + buffers_[i].count;
  }
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = static_cast<double>(Mix64(seed * 1000003 + i) >> 11) * 0x1p-53;
    values[i] = static_cast<float>((2 * unit - 1) * scale);
  }
  return values;
}

std::vector<double> ToDouble(const float* x, int64_t count) { return std::vector<double>(x, x + count); }
std::vector<double> ToDouble(const Bfloat16* x, int64_t count) { return std::vector<double>(x, x + count); }

namespace {

// `rounding`: the relative rounding error of the stored type.
template <class T>
void ExpectAllClose(const T* got, const std::vector<double>& want, double rounding, double tolerance, const std::string& what) {
  double largest = 0;
  for (double x : want) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(got[i] - want[i]);
    if (!(error <= rounding * std::fabs(want[i]) + tolerance * (std::fabs(want[i]) + largest))) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", expected " << want[i] << " (error " << error << ")";
      return;
    }
  }
}

}  // namespace

void ExpectClose(const float* got, const std::vector<double>& want, double tolerance, const std::string& what) {
  ExpectAllClose(got, want, 0, tolerance, what);
}

void ExpectClose(const Bfloat16* got, const std::vector<double>& want, double tolerance, const std::string& what) {
  ExpectAllClose(got, want, kBfloat16Rounding, tolerance, what);
}

}  // namespace lynx::worker
