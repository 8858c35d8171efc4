#include "cli/spec/scalar_text.h"

#include <gtest/gtest.h>

namespace lynx::cli {
namespace {

TEST(ByteSize, ReadsUnits) {
  EXPECT_EQ(*ParseByteSize("24MiB"), kMiB * 24);
  EXPECT_EQ(*ParseByteSize("1.5GiB"), kMiB * 1536);
  EXPECT_EQ(*ParseByteSize("100MB"), Bytes(100'000'000));
  EXPECT_EQ(*ParseByteSize("4096"), Bytes(4096));
  for (const char* bad : {"", "MiB", "-1MiB", "1e3", "1.2.3KiB", "10 MiB", "99999999TiB", "4Mib"}) {
    EXPECT_FALSE(ParseByteSize(bad).ok()) << bad;
  }
}

TEST(ByteSize, PrintsExactly) {
  for (int64_t bytes : {int64_t{1}, int64_t{1000}, int64_t{1024}, int64_t{1536} << 20, int64_t{7} << 30}) {
    EXPECT_EQ(*ParseByteSize(ByteSizeText(Bytes(bytes))), Bytes(bytes));
  }
}

TEST(ScalarText, ReadsRates) {
  EXPECT_EQ(*ParseByteRate("300GB/s"), 300'000'000'000);
  EXPECT_EQ(*ParseByteRate("200Gbit/s"), 25'000'000'000);
  EXPECT_EQ(*ParseByteRate("1.5GiB/s"), int64_t{1536} << 20);
  EXPECT_EQ(*ParseFlopRate("989.4TFLOP/s"), 989'400'000'000'000);
  EXPECT_EQ(*ParseFlopRate("1.98PFLOP/s"), 1'980'000'000'000'000);
  EXPECT_EQ(*ParseFlops("1GFLOP"), 1'000'000'000);
  for (const char* bad : {"", "0GB/s", "300GB", "300", "-1GB/s", "300Gb/s", "9e99GB/s", "99999999999TB/s", "GB/s"}) {
    EXPECT_FALSE(ParseByteRate(bad).ok()) << bad;
  }
  for (const char* bad : {"", "0TFLOP/s", "312TFLOPS", "312TFLOP", "312"}) EXPECT_FALSE(ParseFlopRate(bad).ok()) << bad;
  EXPECT_FALSE(ParseFlops("1GFLOP/s").ok());
}

TEST(ScalarText, ReadsDurationsAndShares) {
  EXPECT_EQ(*ParseDuration("5us"), Nanos(5'000));
  EXPECT_EQ(*ParseDuration("1.5ms"), Nanos(1'500'000));
  EXPECT_EQ(*ParseDuration("0"), Nanos(0));
  EXPECT_EQ(*ParseDuration("1.5h"), Nanos(5'400'000'000'000));
  for (const char* text : {"0", "7ns", "1500us", "90s", "90min", "36h", "2d"}) {
    EXPECT_EQ(DurationText(*ParseDuration(text)), text);
  }
  for (const char* bad : {"", "5", "us", "-1us", "5 us", "99999999999s"}) EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  EXPECT_EQ(*ParseShare("0.83"), 830);
  EXPECT_EQ(*ParseShare("1"), 1000);
  EXPECT_EQ(*ParseShare("0.001"), 1);
  for (const char* bad : {"0", "0.0009", "1.1", "-0.5", "nan", "83%", ""}) EXPECT_FALSE(ParseShare(bad).ok()) << bad;
  for (const char* zero : {"0", "0.0", "0.0004"}) EXPECT_EQ(*ParseShareOrZero(zero), 0) << zero;
  EXPECT_EQ(*ParseShareOrZero("0.25"), 250);
  for (const char* bad : {"-0.001", "1.001", "x"}) EXPECT_FALSE(ParseShareOrZero(bad).ok()) << bad;
  EXPECT_EQ(*ParseSlowdown("1.8"), 1800);
  for (const char* bad : {"0.9", "101", "inf", "x"}) EXPECT_FALSE(ParseSlowdown(bad).ok()) << bad;
}

TEST(ScalarText, SaysWhatWasExpectedAndFound) {
  EXPECT_EQ(ParseByteRate("fast").status().message(), "expected a rate above zero such as 300GB/s or 200Gbit/s, found 'fast'");
  double real;
  EXPECT_EQ(ReadReal("nan", real).message(), "expected a number, found 'nan'");
}

TEST(ScalarText, RealsReadBackTheSame) {
  for (double value : {0.1, 1e-9, 1.7e-5, 3.0, 1.0 / 3, 123456789.125}) {
    double back;
    ASSERT_TRUE(ReadReal(RealText(value), back).ok());
    EXPECT_EQ(back, value);
  }
  EXPECT_EQ(RealText(0.1), "0.1");
  EXPECT_EQ(RealText(3e-4), "0.0003");
  EXPECT_EQ(RealText(1e-8), "1e-08");
  EXPECT_EQ(RealText(0), "0");
  EXPECT_EQ(RealText(3.0517578125e-05), "3.0517578125e-05");
  EXPECT_EQ(RealText(0.9999999), "0.9999999");
}

}  // namespace
}  // namespace lynx::cli
