#include "node/rate.h"

#include <gtest/gtest.h>

#include "node/backoff.h"

namespace lynx {
namespace {

TEST(ParseRate, ReadsBitsAndBytes) {
  EXPECT_EQ(*ParseRate("125000000"), 125'000'000);
  EXPECT_EQ(*ParseRate("1Gbit"), 125'000'000);
  EXPECT_EQ(*ParseRate("1Gbit/s"), 125'000'000);
  EXPECT_EQ(*ParseRate("100Mbit"), 12'500'000);
  EXPECT_EQ(*ParseRate("2.5MB"), 2'500'000);
  EXPECT_EQ(*ParseRate("8bit"), 1);
  EXPECT_EQ(*ParseRate("3kB"), 3'000);
  EXPECT_EQ(*ParseRate(""), 0);
  EXPECT_EQ(*ParseRate("0"), 0);
}

TEST(ParseRate, RefusesWhatIsNoRate) {
  for (const char* text : {"fast", "-1", "1 Zbit", "Gbit", "nan", "inf", "1e30"}) {
    const absl::StatusOr<int64_t> rate = ParseRate(text);
    EXPECT_EQ(rate.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(rate.status().message()).find(text), std::string::npos);
  }
}

TEST(ParseBytes, ReadsBinaryUnits) {
  EXPECT_EQ(*ParseBytes("8GiB"), kGiB * 8);
  EXPECT_EQ(*ParseBytes("0.5MiB"), kKiB * 512);
  EXPECT_EQ(*ParseBytes("123"), Bytes(123));
  EXPECT_EQ(*ParseBytes(""), Bytes(0));
  for (const char* text : {"8GB", "much", "-1KiB", "KiB", "1e30"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseCores, ReadsNumbersAndRanges) {
  EXPECT_EQ(*ParseCores("0-3,6"), (std::vector<int32_t>{0, 1, 2, 3, 6}));
  EXPECT_EQ(*ParseCores("5"), (std::vector<int32_t>{5}));
}

TEST(ParseCores, RefusesWhatIsNoList) {
  for (const char* text : {"", "a", "3-1", "1,,2", "1-2-3", "-1", "1,1", "0-3,2", "99999"}) {
    EXPECT_EQ(ParseCores(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Backoff, GrowsIsBoundedAndStartsAgain) {
  Backoff backoff({.first = Nanos(100), .most = Nanos(1000)}, 7);
  for (int64_t whole : {100, 200, 400, 800, 1000, 1000, 1000}) {
    const Nanos wait = backoff.Next();
    EXPECT_GE(wait.value, whole / 2);
    EXPECT_LE(wait.value, whole);
  }
  for (int i = 0; i < 100; ++i) EXPECT_LE(backoff.Next().value, 1000);
  backoff.Reset();
  EXPECT_LE(backoff.Next().value, 100);
}

TEST(Backoff, DiffersBetweenSeeds) {
  Backoff one({.first = Nanos(1'000'000'000)}, 1);
  Backoff two({.first = Nanos(1'000'000'000)}, 2);
  EXPECT_NE(one.Next(), two.Next());
}

}  // namespace
}  // namespace lynx
