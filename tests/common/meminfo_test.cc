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

TEST(ResidentMemory, IsWhatFilesDoNotBack) {
  EXPECT_EQ(ResidentMemory("1000 500 200 10 0 300 0\n", Bytes(4096)), Bytes(300 * 4096));
  EXPECT_EQ(ResidentMemory("", Bytes(4096)), Bytes(0));
  EXPECT_EQ(ResidentMemory("1000 x 200", Bytes(4096)), Bytes(0));
  EXPECT_GT(ResidentMemory(), Bytes(0));
}

}  // namespace
}  // namespace lynx
