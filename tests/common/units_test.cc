#include "common/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "tests/golden/golden.h"

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

// Around each bound of a unit, around each tie of rounding, and some values of each size. The pages in the browser write
// durations in the same way: tests/browser/test_plots.py compares them with this golden text.
TEST(Units, DurationsAreThoseOfTheGoldenText) {
  std::set<int64_t> values = {0, 1, 9'999'499'999, 63'442'000'000, 125'000'000'000, 11'220'000'000'000, 100'000'000'000'000};
  for (const int64_t unit :
       {int64_t{1'000}, int64_t{1'000'000}, int64_t{1'000'000'000}, int64_t{60'000'000'000}, int64_t{3'600'000'000'000}}) {
    for (const int64_t times : {1, 7, 10, 59, 63, 100, 999, 1000}) {
      for (const int64_t by : {int64_t{-1}, int64_t{0}, int64_t{1}}) values.insert(unit * times + by);
    }
    for (const int64_t eighths : {1, 2, 3, 5, 6, 7, 9, 10, 14, 15, 31, 50, 7999}) {
      for (const int64_t by : {int64_t{-1}, int64_t{0}, int64_t{1}}) values.insert(unit * eighths / 8 + by);
    }
    for (const int64_t hundredths : {115, 205, 995, 9'995, 99'995}) values.insert(unit * hundredths / 100);
  }
  std::string text;
  for (const int64_t value : values) {
    text += std::to_string(value) + "\t" + FormatDuration(Nanos(value)) + "\n";
    if (value > 0) text += std::to_string(-value) + "\t" + FormatDuration(Nanos(-value)) + "\n";
  }
  ExpectGolden("durations.txt", text);
}

}  // namespace
}  // namespace lynx
