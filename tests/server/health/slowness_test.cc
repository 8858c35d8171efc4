#include "server/health/slowness.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

TEST(Slowed, OneThatIsAsMeasuredStaysAsItIs) {
  const HardwareProfile profile = StatedCpuProfile();
  EXPECT_EQ(Slowed(profile, {}), profile);
}

TEST(Slowed, ComputeAndLinksAreSlowedEachByItsOwn) {
  HardwareProfile profile = StatedCpuProfile();
  profile.measured.emplace_back().ops[0].forward = Nanos(1'000);
  const HardwareProfile computes = Slowed(profile, {.compute = 2});
  EXPECT_EQ(computes.flops_per_second, profile.flops_per_second / 2);
  EXPECT_EQ(computes.measured[0].ops[0].forward, Nanos(2'000));
  EXPECT_EQ(computes.inter_node, profile.inter_node);
  HardwareProfile sends = Slowed(profile, {.links = 4});
  EXPECT_EQ(sends.inter_node.bytes_per_second, profile.inter_node.bytes_per_second / 4);
  EXPECT_EQ(sends.intra_node, profile.intra_node);
  sends.inter_node = profile.inter_node;
  EXPECT_EQ(sends, profile) << "nothing else";
  EXPECT_EQ(Slowed(profile, {.links = 1e18}).inter_node.bytes_per_second, 1) << "never none";
}

}  // namespace
}  // namespace lynx::server
