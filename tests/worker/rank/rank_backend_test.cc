// Checks that a rank's backend is on the right device: the CPU, or the GPU with the given UUID. Needs no GPU: a library for
// tests runs the CUDA code on the CPU (tests/worker/backend/cuda_on_host).
#include "worker/rank/rank_backend.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace lynx::worker {
namespace {

using ::testing::StartsWith;

TEST(RankBackend, IsOnTheCpuOrOnTheGpuOfThatUuidAlone) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(MakeRankBackend({}, 1).value()->host_addressable());
  EXPECT_EQ(::getenv("CUDA_VISIBLE_DEVICES"), nullptr) << "a rank on a CPU leaves CUDA alone";
  const std::unique_ptr<Backend> gpu = MakeRankBackend({DeviceKind::kCuda, 3, "GPU-7"}, 1).value();
  EXPECT_FALSE(gpu->host_addressable());
  EXPECT_STREQ(::getenv("CUDA_VISIBLE_DEVICES"), "GPU-7");
  EXPECT_THAT(gpu->Name(), StartsWith("cuda:0: "));
}

TEST(RankBackend, AnErrorNamesTheGpu) {
  cuda_on_host::FailFromCall(1);
  const absl::Status status = MakeRankBackend({DeviceKind::kCuda, 3, "GPU-7"}, 1).status();
  cuda_on_host::FailFromCall(0);
  EXPECT_THAT(std::string(status.message()), StartsWith("GPU 3 of this node (GPU-7): CUDA: "));
}

}  // namespace
}  // namespace lynx::worker
