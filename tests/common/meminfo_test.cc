#include "common/meminfo.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

TEST(AvailableMemory, IsMemAvailable) {
  EXPECT_EQ(AvailableMemory("MemTotal:       24682416 kB\nMemFree:   1 kB\nMemAvailable:   2048 kB\n"), kMiB * 2);
  EXPECT_EQ(AvailableMemory("MemTotal: 5 kB\n"), Bytes(0));
  EXPECT_EQ(AvailableMemory("MemAvailable: lots kB\n"), Bytes(0));
}

TEST(AvailableMemory, ThisMachineHasSome) { EXPECT_GT(AvailableMemory(), kMiB); }

}  // namespace
}  // namespace lynx
