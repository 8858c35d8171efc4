#include "node/heartbeat.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lynx {
namespace {

constexpr Nanos kInterval{1'000'000'000};

TEST(Heartbeat, ComesALittleSoonerThanAsked) {
  Heartbeat heartbeat(1);
  heartbeat.SetInterval(kInterval);
  heartbeat.Sent(Nanos(0));
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    heartbeat.Sent(Nanos(0));
    const Nanos left = heartbeat.Left(Nanos(0));
    EXPECT_LE(left, kInterval);
    EXPECT_GE(left.value, 900'000'000);
    EXPECT_FALSE(heartbeat.Due(left - Nanos(1)));
    EXPECT_TRUE(heartbeat.Due(left));
    seen.insert(left.value / 10'000'000);
  }
  EXPECT_GE(seen.size(), 10u) << "all over the last tenth";
}

// A thousand nodes connect to the server at the same time.
TEST(Heartbeat, NodesThatAttachTogetherDoNotReportTogether) {
  std::vector<int> tenths(10);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Heartbeat heartbeat(seed);
    heartbeat.SetInterval(kInterval);
    for (int attachment = 0; attachment < 2; ++attachment) {
      heartbeat.Attached();
      EXPECT_TRUE(heartbeat.Due(Nanos(0)));
      heartbeat.Sent(Nanos(0));
    }
    ++tenths[static_cast<size_t>(heartbeat.Left(Nanos(0)).value / 100'000'000)];
    heartbeat.Sent(Nanos(0));
    EXPECT_GE(heartbeat.Left(Nanos(0)).value, 900'000'000) << "only the first";
  }
  for (const int nodes : tenths) {
    EXPECT_GE(nodes, 60);
    EXPECT_LE(nodes, 140);
  }
}

TEST(Heartbeat, BoundsWhatAServerMayAsk) {
  Heartbeat heartbeat(1);
  heartbeat.Sent(Nanos(0));
  heartbeat.SetInterval(Nanos(1));
  heartbeat.Sent(Nanos(0));
  EXPECT_GE(heartbeat.Left(Nanos(0)).value, Heartbeat::kShortest.value * 9 / 10);
  heartbeat.SetInterval(Nanos(1'000'000'000'000'000));
  heartbeat.Sent(Nanos(0));
  EXPECT_LE(heartbeat.Left(Nanos(0)), Heartbeat::kLongest);
  heartbeat.SetInterval(Nanos(0));
  heartbeat.Sent(Nanos(0));
  EXPECT_GE(heartbeat.Left(Nanos(0)).value, Heartbeat::kLongest.value * 9 / 10) << "0 keeps what is";
}

}  // namespace
}  // namespace lynx
