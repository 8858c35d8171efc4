#include "agent/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Nanos kHour{3'600'000'000'000};
constexpr Nanos kStart{1'000'000'000'000'000'000};

NodeCondition Only(const GpuHealth& health, Nanos now) {
  const std::vector<NodeCondition> conditions = health.Conditions(now);
  EXPECT_EQ(conditions.size(), 1u);
  return conditions.empty() ? NodeCondition() : conditions.front();
}

class GpuHealthTest : public ::testing::Test {
 protected:
  GpuHealth health_{"GPU 0 (NVIDIA H200)", "GPU-1"};
};

TEST_F(GpuHealthTest, AHealthyGpuHasNoCondition) {
  health_.NoteReadings({.uncorrected_ecc_errors = 0, .throttle_reasons = nvml::kPowerCap}, kStart);
  EXPECT_THAT(health_.Conditions(kStart), IsEmpty());
}

TEST_F(GpuHealthTest, AnXidOfTheHardwareWithdrawsTheGpuForGood) {
  health_.NoteXid(79, kStart);
  NodeCondition condition = Only(health_, kStart + kHour * 1000);
  EXPECT_EQ(condition.kind, "xid");
  EXPECT_EQ(condition.device, "GPU-1");
  EXPECT_TRUE(condition.withdrawn);
  EXPECT_EQ(condition.since, kStart);
  EXPECT_THAT(condition.message, HasSubstr("GPU 0 (NVIDIA H200) had Xid 79, fallen off the bus: it is not offered"));
  // A later Xid whose cause is a program changes nothing.
  health_.NoteXid(31, kStart + kHour);
  EXPECT_EQ(Only(health_, kStart + kHour), condition);
  // If it is not known what causes an Xid number, the hardware counts as the cause.
  GpuHealth other("GPU 1", "GPU-2");
  other.NoteXid(999, kStart);
  EXPECT_TRUE(Only(other, kStart).withdrawn);
  EXPECT_THAT(Only(other, kStart).message, HasSubstr("GPU 1 had Xid 999: "));
}

TEST_F(GpuHealthTest, AnXidOfAProgramIsShownForAnHourAndWithdrawsNothing) {
  for (const int64_t xid : {13, 31, 43, 45, 68, 109}) EXPECT_TRUE(IsXidOfProgram(xid)) << xid;
  for (const int64_t xid : {48, 63, 74, 79, 95, 119}) EXPECT_FALSE(IsXidOfProgram(xid)) << xid;
  health_.NoteXid(31, kStart);
  EXPECT_FALSE(Only(health_, kStart + kHour).withdrawn);
  EXPECT_THAT(Only(health_, kStart).message, HasSubstr("an error of the program that ran on it"));
  EXPECT_THAT(health_.Conditions(kStart + kHour + Nanos(1)), IsEmpty());
  health_.NoteXid(31, kStart + kHour * 2);
  EXPECT_EQ(Only(health_, kStart + kHour * 2).since, kStart + kHour * 2);
}

TEST_F(GpuHealthTest, ALostGpuIsWithdrawn) {
  health_.NoteReadings({.lost = true}, kStart);
  health_.NoteReadings({.lost = true}, kStart + kHour);
  EXPECT_EQ(Only(health_, kStart + kHour).kind, "gpu-lost");
  EXPECT_TRUE(Only(health_, kStart + kHour).withdrawn);
  EXPECT_EQ(Only(health_, kStart + kHour).since, kStart);
}

TEST_F(GpuHealthTest, UncorrectedErrorsOfMemoryAreShown) {
  health_.NoteReadings({.uncorrected_ecc_errors = 1}, kStart);
  EXPECT_THAT(Only(health_, kStart).message, HasSubstr("had 1 uncorrected error of its memory"));
  health_.NoteReadings({.uncorrected_ecc_errors = 3}, kStart + kHour);
  EXPECT_THAT(Only(health_, kStart + kHour).message, HasSubstr("had 3 uncorrected errors"));
  EXPECT_EQ(Only(health_, kStart + kHour).since, kStart);
  EXPECT_FALSE(Only(health_, kStart + kHour).withdrawn);
}

TEST_F(GpuHealthTest, ASlowedClockIsShownWhileItLastsAndAMinuteMore) {
  for (const uint64_t reason : {nvml::kHardwareThermal, nvml::kSoftwareThermal, nvml::kPowerBrake, nvml::kHardwareSlowdown}) {
    EXPECT_NE(SlowdownText(reason), "") << reason;
  }
  const GpuReadings slow{.throttle_reasons = nvml::kHardwareThermal | nvml::kHardwareSlowdown};
  health_.NoteReadings(slow, kStart);
  EXPECT_THAT(Only(health_, kStart).message, HasSubstr("runs below its clock: it is too hot, and the hardware"));
  health_.NoteReadings({.throttle_reasons = 0}, kStart + Nanos(1));
  EXPECT_EQ(Only(health_, kStart + Nanos(60'000'000'000)).kind, "slowed");
  EXPECT_THAT(health_.Conditions(kStart + Nanos(60'000'000'001)), IsEmpty());
}

}  // namespace
}  // namespace lynx::agent
