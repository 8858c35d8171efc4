// TestMemory: buffers for one op under test. Each is 256-byte aligned and lies between guards, so that a write outside
// of it is noticed. Outputs start as NaN, so that an op that reads what it should overwrite is noticed too. Owns its
// buffers.
#ifndef LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_
#define LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/bfloat16.h"
#include "tests/worker/backend/test_backend.h"

namespace lynx::worker {

class TestMemory {
 public:
  // `skip`: shifts all buffers by this many times 256 bytes.
  explicit TestMemory(int64_t skip = 0);

  // Uniform in [-scale, scale), a pure function of the seed.
  float* Random(int64_t count, uint64_t seed, float scale = 1);
  float* Output(int64_t count) { return Constant(count, std::numeric_limits<float>::quiet_NaN()); }
  float* Constant(int64_t count, float value);
  float* Copy(const std::vector<float>& values);
  double* Double(double value);
  // The numbers of Random and Copy, rounded to bfloat16.
  Bfloat16* RandomBfloat16(int64_t count, uint64_t seed, float scale = 1);
  Bfloat16* OutputBfloat16(int64_t count);
  Bfloat16* CopyBfloat16(const std::vector<float>& values);
  int32_t* Tokens(int64_t count, int32_t end, uint64_t seed);  // in [0, end)

  // Fails the test if something was written outside of the buffers.
  void ExpectGuardsIntact() const;

 private:
  struct Buffer {
    int64_t first, count;  // floats in memory_
  };
  float* Place(int64_t count);

  const TestFloats memory_;
  int64_t next_;  // float in memory_; a multiple of 256 bytes in the address space
  std::vector<Buffer> buffers_;
  std::vector<const Bfloat16*> odd_ends_;  // the ends of buffers with an odd number of elements, which lie inside a float
};

// Returns the same numbers as TestMemory::Random.
std::vector<float> RandomFloats(int64_t count, uint64_t seed, float scale = 1);
std::vector<double> ToDouble(const float* x, int64_t count);
std::vector<double> ToDouble(const Bfloat16* x, int64_t count);

// |got - want| <= tolerance * (|want| + largest |want|), for each element; at most one failure is printed.
void ExpectClose(const float* got, const std::vector<double>& want, double tolerance, const std::string& what);
// The same, with an additional tolerance for one rounding to bfloat16.
void ExpectClose(const Bfloat16* got, const std::vector<double>& want, double tolerance, const std::string& what);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_TEST_MEMORY_H_
