// Tests ranks on GPUs: what lynx-rank says if there is no GPU, and how it runs with CUDA on the host instead of a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/worker/rank/rank_processes.h"
#include "worker/contract/measurement.h"

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNoGpu[] = "GPU-of-nobody";

TEST(RankGpu, AGpuThatIsNotThereIsNamed) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 1, [](RankConfig& config) { config.device = {DeviceKind::kCuda, 5, kNoGpu}; }));
  ranks.ExpectAllExit(kRankExitFailure);
  const std::vector<RankFailure> failures = Only<RankFailure>(ranks.Reports(0));
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].reason, StartsWith("GPU 5 of this node (GPU-of-nobody): "));
  EXPECT_FALSE(failures[0].peer_lost);
}

TEST(RankGpu, CheckingSaysWhetherAGpuCanBeUsed) {
  const TestFolder folder;
  const Output none = RunLynxRank(folder, {"--check-cuda", kNoGpu});
  EXPECT_EQ(none.exit_code, kRankExitFailure);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr(kNoGpu));
  // In a build with CUDA, lynx-rank-cuda has looked for the GPU. Only a build without CUDA says that CUDA is missing.
  const bool with_cuda = std::filesystem::exists(std::string(kLynxRank) + "-cuda");
  EXPECT_EQ(none.err.find("this build has no CUDA backend") == std::string::npos, with_cuda) << none.err;
  const Output some = RunLynxRank(folder, {"--check-cuda", "GPU-1"}, kStandInRank);
  EXPECT_EQ(some.exit_code, kRankExitOk) << some.err;
  EXPECT_THAT(some.out, StartsWith("cuda:0: CUDA on the host"));
  // The second line says how many bytes of the GPU's memory are free. The simulated GPU has 8 GiB, and the backend uses a part
  // of it as scratch memory.
  const int64_t free_bytes = std::stoll(some.out.substr(some.out.find('\n') + 1));
  EXPECT_LT(free_bytes, (kGiB * 8).value);
  EXPECT_GT(free_bytes, (kGiB * 7).value);
}

TEST(RankGpu, LinksBetweenGpusNeedNccl) {
  const TestFolder folder;
  const std::string file = folder.Write("request", GpuLinksRequestText({.device_uuids = {"GPU-1", "GPU-2"}}));
  const Output output = RunLynxRank(folder, {"--measure-gpu-links", file}, kStandInRank);
  EXPECT_EQ(output.exit_code, kRankExitFailure);
  EXPECT_THAT(output.err, HasSubstr("lynx-rank was built without NCCL, by which the links between GPUs are measured"));
  const Output bad = RunLynxRank(folder, {"--measure-gpu-links", folder.Write("bad", "{}")}, kStandInRank);
  EXPECT_EQ(bad.exit_code, kRankExitFailure);
  EXPECT_THAT(bad.err, HasSubstr("field 'host' must be a value, but the field is missing"));
}

TEST(RankGpu, MeasuresEveryOpOnTheDevice) {
  const TestFolder folder;
  LayerShape shape{.micro_batch = 1, .seq = 16, .hidden = 32, .heads = 4, .ffn = 64, .vocab = 61, .tp = 2, .dropout = true};
  MeasureRequest request{
      .shapes = {shape}, .device_kind = DeviceKind::kCuda, .device_uuid = "GPU-1", .repetitions = 1, .budget_seconds = 300};
  shape.dtype = DataType::kBfloat16;
  request.shapes.push_back(shape);
  const std::string file = folder.Write("request", MeasureRequestText(request));
  const Output output = RunLynxRank(folder, {"--measure", file}, kStandInRank);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const absl::StatusOr<MeasureResult> result = ParseMeasureResult(output.out);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->device_kind, StartsWith("cuda:0: "));
  EXPECT_GT(result->flops_per_second, 0);
  EXPECT_GT(result->bfloat16_flops_per_second, 0);
  EXPECT_GT(result->memory_bytes_per_second, 0);
  EXPECT_GT(result->op_overhead, Nanos(0));
  EXPECT_GT(result->host.latency, Nanos(0));
  EXPECT_GT(result->host.to_host_bytes_per_second, 1'000'000);
  EXPECT_GT(result->host.from_host_bytes_per_second, 1'000'000);
  const auto [slower, faster] = std::minmax(result->host.to_host_bytes_per_second, result->host.from_host_bytes_per_second);
  EXPECT_GE(result->host.both_bytes_per_second, faster) << "or no planner takes the profile";
  EXPECT_LE(result->host.both_bytes_per_second, slower + faster);
  EXPECT_GE(result->host.op_slowdown_permille, 1000);
  ASSERT_EQ(result->measured.size(), 2u);
  for (const ShapeTimes& times : result->measured) {
    EXPECT_GT(times.optimizer_per_mega_parameter, Nanos(0));
    for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
      const OpTimes& op = times.ops[static_cast<size_t>(info.op)];
      EXPECT_GT(op.forward, Nanos(0)) << EnumName(info.op);
      EXPECT_EQ(op.weight > Nanos(0), info.has_weight_pass) << EnumName(info.op);
    }
  }
}

}  // namespace
}  // namespace lynx::worker
