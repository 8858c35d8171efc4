#include "node/oom_kills.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr Nanos kSecond{1'000'000'000};

class OomKillsTest : public testing::Test {
 protected:
  OomKillsTest() : folder_(absl::StrCat(testing::TempDir(), "oom-", getpid())) { std::filesystem::create_directories(folder_); }
  ~OomKillsTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + path).parent_path());
    std::ofstream(folder_ + path) << text;
  }
  const std::string folder_;
};

TEST_F(OomKillsTest, WhatGrowsIsRecentForAWhile) {
  Write("/events", "low 0\noom 3\noom_kill 2\n");
  OomKills kills(folder_ + "/events");
  kills.Look(kSecond);
  EXPECT_FALSE(kills.Recent(kSecond)) << "what was there before is long ago";
  kills.Look(kSecond * 2);
  EXPECT_FALSE(kills.Recent(kSecond * 2));
  Write("/events", "low 0\noom 4\noom_kill 3\n");
  kills.Look(kSecond * 3);
  EXPECT_TRUE(kills.Recent(kSecond * 3));
  kills.Look(kSecond * 4);
  EXPECT_TRUE(kills.Recent(kSecond * 4));
  EXPECT_FALSE(kills.Recent(kSecond * 3 + OomKills::kRecent));
}

TEST_F(OomKillsTest, AFileThatIsNotThereCountsNothing) {
  OomKills kills(folder_ + "/none");
  kills.Look(kSecond);
  EXPECT_FALSE(kills.Recent(kSecond));
  Write("/none", "oom_kill many\n");
  kills.Look(kSecond);
  Write("/none", "oom_kill 7\n");
  kills.Look(kSecond);
  EXPECT_FALSE(kills.Recent(kSecond)) << "the first figure";
}

TEST_F(OomKillsTest, TheOwnCgroupComesBeforeTheMachine) {
  const std::string proc = folder_ + "/proc", cgroups = folder_ + "/cgroup";
  EXPECT_EQ(OomCounterFile(proc, cgroups), proc + "/vmstat");
  Write("/proc/self/cgroup", "4:memory:/job/7\n1:cpu:/\n0::/slice/unit\n");
  EXPECT_EQ(OomCounterFile(proc, cgroups), proc + "/vmstat") << "none of the two can be seen";
  Write("/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  EXPECT_EQ(OomCounterFile(proc, cgroups), cgroups + "/memory/memory.oom_control") << "a container's own";
  Write("/cgroup/memory/job/7/memory.oom_control", "oom_kill 0\n");
  EXPECT_EQ(OomCounterFile(proc, cgroups), cgroups + "/memory/job/7/memory.oom_control");
  Write("/cgroup/slice/unit/memory.events", "oom 0\n");
  EXPECT_EQ(OomCounterFile(proc, cgroups), cgroups + "/memory/job/7/memory.oom_control") << "it does not count kills";
  Write("/proc/self/cgroup", "0::/slice/unit\n");
  Write("/cgroup/slice/unit/memory.events", "oom 0\noom_kill 0\n");
  EXPECT_EQ(OomCounterFile(proc, cgroups), cgroups + "/slice/unit/memory.events");
}

}  // namespace
}  // namespace lynx
