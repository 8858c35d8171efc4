#include "agent/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prometheus/text_serializer.h"

namespace lynx::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMetricsTest, ServesReadingsUnderTheNamesOfDcgm) {
  prometheus::Registry registry;
  GpuMetrics metrics(registry, {.index = 1, .uuid = "GPU-1", .model = "NVIDIA H200", .node = "n1"});
  GpuMetrics other(registry, {.index = 0, .uuid = "GPU-0", .model = "NVIDIA H200", .node = "n1"});
  metrics.Set({.utilization_percent = 93,
               .memory_used = Bytes(int64_t{3} << 30),
               .sm_clock_mhz = 1755,
               .power_watts = 612.5,
               .uncorrected_ecc_errors = 2,
               .throttle_reasons = 4});
  metrics.SetXid(79);
  const auto text = [&] { return prometheus::TextSerializer().Serialize(registry.Collect()); };
  const std::string labels = "{Hostname=\"n1\",UUID=\"GPU-1\",gpu=\"1\",modelName=\"NVIDIA H200\"} ";
  for (const char* line :
       {"DCGM_FI_DEV_GPU_UTIL LABELS93\n", "DCGM_FI_DEV_FB_USED LABELS3072\n", "DCGM_FI_DEV_SM_CLOCK LABELS1755\n",
        "DCGM_FI_DEV_POWER_USAGE LABELS612.5\n", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL LABELS2\n",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS LABELS4\n", "DCGM_FI_DEV_XID_ERRORS LABELS79\n"}) {
    std::string expected = line;
    expected.replace(expected.find(" LABELS"), 7, labels);
    EXPECT_THAT(text(), HasSubstr(expected));
  }
  EXPECT_THAT(text(), HasSubstr("gpu=\"0\",modelName=\"NVIDIA H200\"} 0\n")) << "no Xid yet";
  EXPECT_THAT(text(), Not(HasSubstr("DCGM_FI_DEV_GPU_TEMP"))) << "it was not told";
  metrics.Set({.utilization_percent = 0});
  EXPECT_THAT(text(), HasSubstr("DCGM_FI_DEV_GPU_UTIL" + labels + "0\n"));
}

}  // namespace
}  // namespace lynx::agent
