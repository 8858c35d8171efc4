// Measures the links between GPUs, with CUDA and NCCL on the host. Every rank must make the same calls, and the result must be
// complete. The speeds are those of the host.
#include "worker/rank/measure/measure_gpu_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "absl/strings/str_cat.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

GpuLinksRequest RequestOf(int gpus, std::vector<int32_t> blocks = {}) {
  GpuLinksRequest request{.blocks = std::move(blocks), .repetitions = 2, .budget_seconds = 60};
  for (int i = 0; i < gpus; ++i) request.device_uuids.push_back(absl::StrCat("GPU-", i));
  return request;
}

const GpuLinkSizes kSmall{.transfers = {Bytes(1200), Bytes(12'000), Bytes(120'000)}, .product_side = 16};

// Each thread of the test has its own device, so every rank uses device number 0.
absl::StatusOr<std::unique_ptr<Backend>> MakeOne(int32_t) { return MakeCudaBackend(0); }

void ExpectWhole(const LinkCost& link) {
  EXPECT_GE(link.latency, Nanos(0));
  EXPECT_GT(link.bytes_per_second, 0);
}

TEST(MeasureGpuLinks, MeasuresBlocksAndAllTogether) {
  for (const auto& [gpus, blocks] : std::vector<std::pair<int, std::vector<int32_t>>>{{2, {}}, {3, {}}, {4, {2}}}) {
    cuda_on_host::TransfersIssued();
    const absl::StatusOr<GpuLinksResult> result = MeasureGpuLinks(RequestOf(gpus, blocks), MakeOne, kSmall);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectWhole(result->link);
    ASSERT_EQ(result->inner_links.size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(result->inner_links[i].devices, blocks[i]);
      ExpectWhole(result->inner_links[i].link);
    }
    EXPECT_GE(result->overlap_slowdown_permille, 1000);
    EXPECT_GE(result->communication_compute_permille, 0);
    EXPECT_LE(result->communication_compute_permille, 1000);
    // The NCCL of the tests takes no device memory. A route takes one page of memory for its first transfer.
    EXPECT_EQ(result->route_memory, Bytes(4096));
    EXPECT_EQ(result->nccl_memory, Bytes(0));
    EXPECT_GT(cuda_on_host::TransfersIssued(), 0);
    EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
  }
}

TEST(MeasureGpuLinks, ASpentBudgetStillGivesALink) {
  GpuLinksRequest request = RequestOf(2);
  request.budget_seconds = 1e-9;
  const absl::StatusOr<GpuLinksResult> result = MeasureGpuLinks(request, MakeOne, kSmall);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectWhole(result->link);
}

TEST(MeasureGpuLinks, AGpuThatCannotBeUsedIsNamedAndNobodyWaitsForIt) {
  const auto make = [](int32_t index) -> absl::StatusOr<std::unique_ptr<Backend>> {
    if (index == 1) return absl::InternalError("it fell off the bus");
    return MakeCudaBackend(0);
  };
  const absl::Status status = MeasureGpuLinks(RequestOf(3), make, kSmall).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU GPU-1: it fell off the bus"));
}

TEST(MeasureGpuLinks, AFailedTransferEndsAllRanks) {
  for (const int64_t k : {3, 40}) {
    cuda_on_host::FailTransfer(k, ncclInternalError);
    const absl::Status status = MeasureGpuLinks(RequestOf(3), MakeOne, kSmall).status();
    cuda_on_host::FailTransfer(0, ncclSuccess);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(cuda_on_host::LiveCommunicators(), 0);
  }
}

OverlapTimes Micros(int64_t transfer, int64_t few, int64_t few_beside, int64_t many, int64_t both) {
  const auto time = [](int64_t us) { return Nanos(us * 1000); };
  return {time(transfer), time(few), time(few_beside), time(many), time(both)};
}

TEST(OverlapOf, TellsSlowedOpsFromALostWindow) {
  EXPECT_EQ(OverlapOf(Micros(100, 50, 50, 100, 100)), (OverlapCost{1000, 0})) << "perfect";
  EXPECT_EQ(OverlapOf(Micros(100, 50, 50, 100, 200)), (OverlapCost{1000, 1000})) << "one after the other";
  // The transfer takes its usual 100 us. Ops run at 4/5 of their speed during the transfer, so it hides 80 of 100 us of ops.
  // The slowdown of the ops explains the total of 120 us, and no window is lost.
  EXPECT_EQ(OverlapOf(Micros(100, 40, 50, 100, 120)), (OverlapCost{1250, 0}));
  // The transfer also becomes slower, so only 60 us are hidden.
  EXPECT_EQ(OverlapOf(Micros(100, 40, 50, 100, 140)), (OverlapCost{1250, 250}));
  EXPECT_EQ(OverlapOf(Micros(100, 50, 40, 100, 90)), (OverlapCost{1000, 0})) << "noise";
}

}  // namespace
}  // namespace lynx::worker
