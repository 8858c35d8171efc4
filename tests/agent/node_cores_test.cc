#include "agent/node_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace lynx::agent {
namespace {

class NodeCoresTest : public testing::Test {
 protected:
  NodeCoresTest() : folder_(absl::StrCat(testing::TempDir(), "node-cores-", getpid())) {
    std::filesystem::remove_all(folder_);
    Write("/proc/sys/kernel/random/boot_id", "0a1b-2c3d\n");
  }
  ~NodeCoresTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + path).parent_path());
    std::ofstream(folder_ + path) << text;
  }
  NodeCores Find() const { return FindNodeCores(folder_ + "/proc", folder_ + "/cgroup"); }

  const std::string folder_;
};

TEST_F(NodeCoresTest, TheMachineIsADigestOfItsBoot) {
  const NodeCores cores = Find();
  EXPECT_EQ(cores.machine.size(), 32u);
  EXPECT_EQ(cores.machine.find("0a1b"), std::string::npos) << "what Linux says is not for others";
  EXPECT_EQ(Find(), cores);
  EXPECT_EQ(cores.limit_group, "");
  EXPECT_EQ(cores.limit_permille, 0);
  Write("/proc/sys/kernel/random/boot_id", "another\n");
  EXPECT_NE(Find().machine, cores.machine);
  std::filesystem::remove(folder_ + "/proc/sys/kernel/random/boot_id");
  EXPECT_EQ(Find().machine, "");
}

TEST_F(NodeCoresTest, Version2LimitsByTheNarrowestGroup) {
  Write("/proc/self/cgroup", "0::/pods/lynx\n");
  Write("/cgroup/pods/lynx/cpu.max", "max 100000\n");
  EXPECT_EQ(Find().limit_permille, 0);
  Write("/cgroup/pods/cpu.max", "400000 100000\n");
  EXPECT_EQ(Find().limit_permille, 4000);
  const std::string outer = Find().limit_group;
  EXPECT_EQ(outer.size(), 32u);
  Write("/cgroup/pods/lynx/cpu.max", "150000 100000\n");
  EXPECT_EQ(Find().limit_permille, 1500);
  EXPECT_NE(Find().limit_group, outer);
  // Now the inner group limits nothing. The process of another inner group has the same outer group, so the same group limits
  // both processes.
  Write("/cgroup/pods/lynx/cpu.max", "max 100000\n");
  Write("/proc/self/cgroup", "0::/pods/other\n");
  Write("/cgroup/pods/other/cpu.max", "max 100000\n");
  EXPECT_EQ(Find().limit_group, outer);
}

TEST_F(NodeCoresTest, InAContainerWhatIsMountedIsItsOwn) {
  Write("/proc/self/cgroup", "0::/of/the/host\n");
  Write("/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(Find().limit_permille, 500);
  EXPECT_NE(Find().limit_group, "");
}

TEST_F(NodeCoresTest, Version1HasAQuotaAndAPeriod) {
  Write("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n");
  Write("/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  Write("/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Find().limit_permille, 0);
  Write("/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(Find().limit_permille, 2500);
  EXPECT_NE(Find().limit_group, "");
}

TEST_F(NodeCoresTest, WhatCannotBeReadIsNoLimit) {
  for (const char* const text : {"", "much 100000\n", "0 100000\n", "100000 0\n", "100000\n"}) {
    Write("/proc/self/cgroup", "0::/\nnonsense\n0::nonsense\n");
    Write("/cgroup/cpu.max", text);
    EXPECT_EQ(Find().limit_permille, 0) << text;
  }
}

TEST(FindNodeCores, KnowsThisMachine) { EXPECT_EQ(FindNodeCores(), FindNodeCores()); }

}  // namespace
}  // namespace lynx::agent
