#include "server/health/speed_watch.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

void AddSteps(SpeedWatch& watch, const std::vector<int64_t>& micros, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (size_t r = 0; r < micros.size(); ++r) watch.Add(static_cast<int32_t>(r), Nanos(micros[r] * 1'000));
  }
}

TEST(SpeedWatch, OneThatBecomesSlowerIsFound) {
  SpeedWatch watch(3);
  AddSteps(watch, {900, 900, 900}, 2);  // the first two steps are ignored
  AddSteps(watch, {100, 50, 200}, 16);
  AddSteps(watch, {100, 50, 200}, 15);
  EXPECT_TRUE(watch.Changes().empty()) << "too little is known";
  AddSteps(watch, {100, 50, 200}, 1);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 1, 1}));
  AddSteps(watch, {100, 125, 200}, 7);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 1, 1})) << "a few steps say nothing";
  AddSteps(watch, {100, 125, 200}, 2);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 2.5, 1}));
  AddSteps(watch, {100, 125, 200}, 7);
  watch.Rebase();
  EXPECT_TRUE(watch.Changes().empty());
  AddSteps(watch, {100, 125, 200}, 8);
  AddSteps(watch, {100, 250, 200}, 16);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 2, 1})) << "beside the latest steps then";
}

TEST(SpeedWatch, WhatSlowsAllSaysNothingOfOne) {
  SpeedWatch watch(2);
  AddSteps(watch, {100, 100}, 18);
  AddSteps(watch, {300, 300}, 16);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 1}));
  AddSteps(watch, {300, 600}, 16);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{1, 2}));
  AddSteps(watch, {50, 100}, 16);
  EXPECT_EQ(watch.Changes(), (std::vector<double>{0.5, 1})) << "the one that changed least is the measure";
}

}  // namespace
}  // namespace lynx::server
