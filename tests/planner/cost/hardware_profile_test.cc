#include "planner/cost/hardware_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

namespace lynx {
namespace {

TEST(EfficiencyTest, IsLinearInTheLogarithmOfSize) {
  const EfficiencyCurve curve = {{100, 200}, {10'000, 400}, {20'000, 1000}};
  EXPECT_EQ(EfficiencyAt(curve, 1), 200);
  EXPECT_EQ(EfficiencyAt(curve, 100), 200);
  EXPECT_EQ(EfficiencyAt(curve, 10'000), 400);
  EXPECT_EQ(EfficiencyAt(curve, 20'000), 1000);
  EXPECT_EQ(EfficiencyAt(curve, int64_t{1} << 62), 1000);
  for (int64_t size = 101; size < 20'000; size += 97) {
    const double expected = size < 10'000 ? 200 + 200 * std::log(size / 100.0) / std::log(100.0)
                                          : 400 + 600 * std::log(size / 10'000.0) / std::log(2.0);
    EXPECT_NEAR(EfficiencyAt(curve, size), expected, 1.0) << size;
  }
  EXPECT_EQ(EfficiencyAt({}, 5), 1000);
  EXPECT_EQ(EfficiencyAt({{7, 123}}, -5), 123);
}

TEST(EfficiencyTest, NeighbouringLargeSizesAreTakenApart) {
  const int64_t large = int64_t{1} << 62;
  EXPECT_EQ(EfficiencyAt({{large, 100}, {large + 1, 900}}, large), 100);
  EXPECT_EQ(EfficiencyAt({{large, 100}, {large + 1, 900}}, large + 1), 900);
}

TEST(HardwareProfileTest, UnusableDescriptionsAreRefused) {
  using P = HardwareProfile;
  struct Case {
    std::function<void(P&)> change;
    const char* message;  // "": the profile is usable
  };
  const LinkCost link{Nanos(1), 1};
  const Case cases[] = {
      {[](P& p) {
         p.efficiency[0] = {{1, 1}, {2, 1000}};
       },
       ""},
      {[](P& p) {
         p.gemm_tiles = {108, 256, 128};
       },
       ""},
      {[&](P& p) {
         p.inner_links = {{2, link}, {4, link}};
       },
       ""},
      {[](P& p) {
         p.host = {Nanos(1), 10, 20, 20};
       },
       ""},
      {[](P& p) { p.bfloat16_flops_per_second = -1; }, "its 16-bit rate is -1 FLOP/s"},
      {[](P& p) { p.float8_flops_per_second = -1; }, "its 8-bit rate is -1 FLOP/s"},
      {[](P& p) {
         p.efficiency[4] = {{1, 0}};
       },
       "an efficiency is 0 permille, not within 1 and 1000"},
      {[](P& p) {
         p.efficiency[4] = {{1, 1001}};
       },
       "an efficiency is 1001 permille, not within 1 and 1000"},
      {[](P& p) {
         p.efficiency[2] = {{0, 5}};
       },
       "an efficiency stands at size 0, which is below 1"},
      {[](P& p) {
         p.efficiency[2] = {{5, 5}, {5, 6}};
       },
       "an efficiency at size 5 follows one at size 5: sort them by size"},
      {[](P& p) { p.efficiency[2].resize(65); }, "an efficiency curve has 65 points, more than 64"},
      {[](P& p) {
         p.gemm_tiles = {108, 256, 0};
       },
       "products are tiled 256 x 0 over 108 units: all must be from 1 to 1048576, or all 0"},
      {[&](P& p) {
         p.inner_links = {{1, link}};
       },
       "an inner link joins 1 devices: must be a larger multiple of 1, and at most 65536"},
      {[&](P& p) {
         p.inner_links = {{2, link}, {3, link}};
       },
       "an inner link joins 3 devices: must be a larger multiple of 2, and at most 65536"},
      {[&](P& p) {
         p.inner_links = {{4, link}, {4, link}};
       },
       "an inner link joins 4 devices: must be a larger multiple of 4, and at most 65536"},
      {[](P& p) {
         p.inner_links = {{2, {Nanos(1), 0}}};
       },
       "the link among 2 devices has 0 bytes/s and a latency of 1 ns"},
      {[](P& p) { p.inner_links.resize(5); }, "there are 5 levels of inner links, more than 4"},
      {[](P& p) {
         p.host = {Nanos(0), 10, 20, 19};
       },
       "copies to the host run at 10 bytes/s, from it at 20, both together at 19: all must be positive, the last "
       "from the "
       "larger of the others to their sum, or all 0"},
      {[](P& p) {
         p.host = {Nanos(0), 10, 20, 31};
       },
       "copies to the host run at 10 bytes/s"},
      {[](P& p) {
         p.host = {Nanos(0), 10, 0, 10};
       },
       "copies to the host run at 10 bytes/s"},
      {[](P& p) {
         p.host = {Nanos(0), 0, 0, 10};
       },
       "copies to the host run at 0 bytes/s"},
      {[](P& p) { p.host.latency = Nanos(-1); }, "the latency of copies to the host is no time"},
      {[](P& p) { p.host.op_slowdown_permille = 999; }, "ops beside a copy to the host take 999 permille"},
  };
  for (const Case& c : cases) {
    HardwareProfile profile = StatedCpuProfile();
    c.change(profile);
    const absl::Status status = CheckProfile(profile);
    if (*c.message == '\0') {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace lynx
