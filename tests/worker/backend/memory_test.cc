#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

#include "worker/backend/backend.h"

namespace lynx::worker {
namespace {

TEST(Allocate, GivesExactlyTheBytesAskedForAlignedAndZeroed) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (int64_t floats : {1, 1000, 1024, 1000003}) {
    absl::StatusOr<std::span<float>> memory = backend->Allocate(Bytes(floats * 4), "the arena");
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(static_cast<int64_t>(memory->size()), floats);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(memory->begin(), memory->end(), [](float x) { return x == 0; }));
    backend->Fill(memory->data(), floats, 1.5f);
    EXPECT_EQ(memory->back(), 1.5f);
  }
  EXPECT_EQ(backend->Allocate(Bytes(0), "nothing")->size(), 0u);
}

TEST(Allocate, SaysWhatCouldNotBeHad) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const absl::Status status = backend->Allocate(Bytes(int64_t{1} << 60), "the activation arena").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("the activation arena"));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("1152921504606846976 bytes"));
}

int64_t MappedPages() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(Release, GivesBackWhatWasAllocated) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const int64_t before = MappedPages();
  constexpr int64_t kBytes = int64_t{1} << 30, kPages = kBytes / 4096;
  const std::span<float> kept = backend->Allocate(Bytes(4096), "what stays").value();
  const std::span<float> memory = backend->Allocate(Bytes(kBytes), "what goes").value();
  EXPECT_GE(MappedPages(), before + kPages);
  backend->Release(memory);
  EXPECT_LT(MappedPages(), before + kPages / 2);
  backend->Release({});
  kept[0] = 1;
}

TEST(MakeCpuBackend, FlushesDenormalsToZero) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  volatile float smallest_normal = std::numeric_limits<float>::min();
  EXPECT_EQ(smallest_normal / 2, 0.0f);
  EXPECT_THAT(backend->Name(), testing::StartsWith("cpu: OpenBLAS "));
}

TEST(Fill, WritesTheGivenRangeOnly) {
  std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  std::vector<float> x(10, 1.0f);
  backend->Fill(x.data() + 2, 5, 3.0f);
  EXPECT_THAT(x, testing::ElementsAre(1, 1, 3, 3, 3, 3, 3, 1, 1, 1));
}

}  // namespace
}  // namespace lynx::worker
