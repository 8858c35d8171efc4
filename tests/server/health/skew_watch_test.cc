#include "server/health/skew_watch.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

void AddSteps(SkewWatch& watch, double skew, int steps) {
  for (int i = 0; i < steps; ++i) watch.Add(skew);
}

TEST(SkewWatch, SaysNothingBeforeItKnowsEnoughSteps) {
  SkewWatch watch;
  AddSteps(watch, 3, 33);
  EXPECT_FALSE(watch.Lasting().has_value());
  AddSteps(watch, 3, 1);
  EXPECT_EQ(watch.Lasting(), 3);
}

TEST(SkewWatch, IsTheMedianOfTheNewestSteps) {
  SkewWatch watch;
  AddSteps(watch, 3, 40);
  AddSteps(watch, 1.25, 7);
  EXPECT_EQ(watch.Lasting(), 3) << "a few steps say nothing";
  AddSteps(watch, 1.25, 2);
  EXPECT_EQ(watch.Lasting(), 1.25);
  AddSteps(watch, 1.5, 16);
  EXPECT_EQ(watch.Lasting(), 1.5);
}

}  // namespace
}  // namespace lynx::server
