#include "proto/event_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace lynx {
namespace {

TEST(EventKind, EachNameIsOfOneKind) {
  for (const EventKindInfo& info : EventKinds()) {
    EXPECT_EQ(ParseEventKind(info.name), info.kind);
    EXPECT_EQ(std::string(EventKindName(info.kind)), info.name);
  }
  EXPECT_EQ(ParseEventKind("of-another-release"), std::nullopt);
  EXPECT_EQ(ParseEventKind(""), std::nullopt);
}

// The strip of events in a report must mark everything that stops a job.
TEST(EventKind, WhatStopsAJobIsMarked) {
  for (const EventKindInfo& info : EventKinds()) {
    if (info.stops) {
      EXPECT_NE(info.mark, EventMark::kNone) << info.name;
    }
  }
}

}  // namespace
}  // namespace lynx
