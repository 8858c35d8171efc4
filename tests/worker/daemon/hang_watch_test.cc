#include "worker/daemon/hang_watch.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lynx::worker {
namespace {

constexpr Nanos kSecond{1'000'000'000};
constexpr Nanos kLimit = kSecond * 20;

class HangWatchTest : public testing::Test {
 protected:
  // Looks `looks` times, once a second. Returns the number of the look that found that the rank hangs; 0: none did.
  int FoundAt(int looks, std::optional<ToldProgress> told) {
    for (int look = 1; look <= looks; ++look) {
      now_ = now_ + kSecond;
      if (watch_.Hangs(told, now_)) return look;
    }
    return 0;
  }
  Nanos now_ = kSecond * 1000;
  HangWatch watch_{kLimit, now_};
};

TEST_F(HangWatchTest, ARankThatTellsTheSameForTheLimitHangs) {
  EXPECT_EQ(FoundAt(30, ToldProgress{7, Nanos(0)}), 21);  // the first look learns what the rank tells
  EXPECT_EQ(watch_.still(), kLimit);
}

TEST_F(HangWatchTest, AnyProgressBeginsTheTimeAnew) {
  for (int64_t made = 0; made < 5; ++made) EXPECT_EQ(FoundAt(19, ToldProgress{made, Nanos(0)}), 0);
  EXPECT_EQ(FoundAt(30, ToldProgress{5, Nanos(0)}), 21);
}

TEST_F(HangWatchTest, QuietWorkMayTakeItsTimeOnTop) {
  EXPECT_EQ(FoundAt(50, ToldProgress{7, kSecond * 15}), 36);
  EXPECT_EQ(watch_.still(), kSecond * 35);
}

TEST_F(HangWatchTest, ARankThatHasNeverToldAnythingHangs) { EXPECT_EQ(FoundAt(30, std::nullopt), 20); }

TEST_F(HangWatchTest, ARankThatCannotTellAnyMoreDoesNotHangForThat) {
  EXPECT_EQ(FoundAt(10, ToldProgress{7, Nanos(0)}), 0);
  EXPECT_EQ(FoundAt(100, std::nullopt), 0);
  EXPECT_EQ(FoundAt(30, ToldProgress{8, Nanos(0)}), 21);
}

TEST_F(HangWatchTest, TimeInWhichNobodyLookedDoesNotCount) {
  EXPECT_EQ(FoundAt(10, ToldProgress{7, Nanos(0)}), 0);
  now_ = now_ + kSecond * 3600;
  EXPECT_EQ(FoundAt(30, ToldProgress{7, Nanos(0)}), 11);
}

TEST_F(HangWatchTest, ExcusedTimeDoesNotCount) {
  EXPECT_EQ(FoundAt(10, ToldProgress{7, Nanos(0)}), 0);
  for (int i = 0; i < 100; ++i) watch_.Excuse(now_ = now_ + kSecond);
  EXPECT_EQ(FoundAt(30, ToldProgress{7, Nanos(0)}), 11);
}

// The rank may run as another user, and the file is its own.
TEST_F(HangWatchTest, AnyNumbersAreTaken) {
  EXPECT_EQ(FoundAt(30, ToldProgress{INT64_MIN, Nanos(INT64_MAX)}), 0);
  EXPECT_EQ(FoundAt(30, ToldProgress{INT64_MAX, Nanos(INT64_MIN)}), 21);
}

}  // namespace
}  // namespace lynx::worker
