// TestMemory provides buffers for one op under test. Each buffer is 256-byte aligned and lies between guards, so that a write
// outside of it is noticed. Outputs begin as NaN, so that the test notices if an op reads memory that it should overwrite. Owns
// its buffers.
#ifndef LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_
#define LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "common/bfloat16.h"
#include "tests/worker/backend/test_backend.h"

namespace lynx::worker {

class TestMemory {
 public:
  // `skip`: all buffers are `skip` * 256 bytes further on.
  explicit TestMemory(int64_t skip = 0);

  // The numbers are uniform in [-scale, scale) and depend only on the seed.
  float* Random(int64_t count, uint64_t seed, float scale = 1);
  float* Output(int64_t count) { return Constant(count, std::numeric_limits<float>::quiet_NaN()); }
  float* Constant(int64_t count, float value);
  float* Copy(const std::vector<float>& values);
  double* Double(double value);
  // The functions whose names end with Bfloat16 return the numbers of Random, Output and Copy, rounded to bfloat16.
  Bfloat16* RandomBfloat16(int64_t count, uint64_t seed, float scale = 1);
  Bfloat16* OutputBfloat16(int64_t count);
  Bfloat16* CopyBfloat16(const std::vector<float>& values);
  // Returns the memory of Output, for elements of type T.
  template <class T>
  T* OutputOf(int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      return Output(count);
    } else {
      return OutputBfloat16(count);
    }
  }
  // Returns the numbers of Random, as T. They begin `shift` elements after an aligned address.
  template <class T>
  T* RandomAt(int64_t shift, int64_t count, uint64_t seed, float scale = 1);
  int32_t* Tokens(int64_t count, int32_t end, uint64_t seed);  // the tokens are in [0, end)

  // Fails the test if something was written outside of the buffers.
  void ExpectGuardsIntact() const;

 private:
  struct Buffer {
    int64_t first, count;  // counted in floats of memory_
  };
  float* Place(int64_t count);

  const TestFloats memory_;
  // The index of the first unused float in memory_. Its address is a multiple of 256 bytes.
  int64_t next_;
  std::vector<Buffer> buffers_;
  // The ends of buffers with an odd number of bfloat16 elements. Each of these ends lies inside a float.
  std::vector<const Bfloat16*> odd_ends_;
};

// Returns the same numbers as TestMemory::Random.
std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale = 1);

template <class T>
T* TestMemory::RandomAt(int64_t shift, int64_t count, uint64_t seed, float scale) {
  std::vector<float> values = RandomFloats(count, seed, scale);
  values.insert(values.begin(), static_cast<size_t>(shift), 0.0f);
  if constexpr (std::is_same_v<T, float>) {
    return Copy(values) + shift;
  } else {
    return CopyBfloat16(values) + shift;
  }
}

std::vector<double> ToDouble(const float* x, int64_t count);
std::vector<double> ToDouble(const Bfloat16* x, int64_t count);

// Expects |got - want| <= tolerance * (|want| + largest |want|) for each element. Prints at most one failure.
void ExpectClose(const float* got, const std::vector<double>& want, double tolerance, const std::string& what);
// Does the same, with an additional tolerance for one rounding to bfloat16.
void ExpectClose(const Bfloat16* got, const std::vector<double>& want, double tolerance, const std::string& what);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_
