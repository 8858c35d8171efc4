#include "common/units.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

TEST(Units, FormatsBytes) {
  EXPECT_EQ(FormatBytes(Bytes(812)), "812 B");
  EXPECT_EQ(FormatBytes(Bytes(3174)), "3.1 KiB");
  EXPECT_EQ(FormatBytes(kMiB * 24), "24.0 MiB");
  EXPECT_EQ(FormatBytes(-(kGiB * 2)), "-2.0 GiB");
}

TEST(Units, FormatsDurations) {
  EXPECT_EQ(FormatDuration(Nanos(950)), "950 ns");
  EXPECT_EQ(FormatDuration(Nanos(12'300)), "12.3 us");
  EXPECT_EQ(FormatDuration(Nanos(4'500'000)), "4.5 ms");
  EXPECT_EQ(FormatDuration(Nanos(1'200'000'000)), "1.20 s");
  EXPECT_EQ(FormatDuration(Nanos(125'000'000'000)), "2m05s");
  EXPECT_EQ(FormatDuration(Nanos(11'220'000'000'000)), "3h07m");
}

}  // namespace
}  // namespace lynx
