#include "server/health/link_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/health/link_verdict.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Nanos Millis(int64_t millis) { return Nanos(millis * 1'000'000); }

// Adds steps in which rank 0 sends to rank 1 and keeps the link busy for `busy_millis` ms.
void AddSteps(LinkWatch& watch, int64_t step_millis, int64_t busy_millis, int steps) {
  for (int i = 0; i < steps; ++i) watch.Add(0, Millis(step_millis), {{.peer = 1, .bytes = 1000, .busy = Millis(busy_millis)}});
}

TEST(LinkWatch, OneThatIsBusyForLongerIsFound) {
  LinkWatch watch(2);
  AddSteps(watch, 500, 400, 2);  // the first two steps are ignored
  AddSteps(watch, 100, 4, 16);
  AddSteps(watch, 100, 4, 15);
  AddSteps(watch, 100, 4, 1);
  EXPECT_THAT(watch.Changes(), IsEmpty());
  AddSteps(watch, 200, 104, 7);
  EXPECT_THAT(watch.Changes(), IsEmpty()) << "a few steps say nothing";
  AddSteps(watch, 200, 104, 2);
  const std::vector<LinkWatch::Change> changes = watch.Changes();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].from, 0);
  EXPECT_EQ(changes[0].to, 1);
  EXPECT_EQ(changes[0].bytes, 1000);
  EXPECT_EQ(changes[0].before, Millis(4));
  EXPECT_EQ(changes[0].now, Millis(104));
  EXPECT_TRUE(changes[0].slower());
  AddSteps(watch, 200, 104, 7);
  watch.Rebase();
  EXPECT_THAT(watch.Changes(), IsEmpty());
  AddSteps(watch, 200, 104, 8);
  AddSteps(watch, 100, 4, 16);
  ASSERT_THAT(watch.Changes(), SizeIs(1)) << "beside the latest steps then";
  EXPECT_FALSE(watch.Changes()[0].slower());
}

TEST(LinkWatch, AStepInWhichTheLinkBecameSlowDoesNotSpeakForThoseAfter) {
  LinkWatch watch(2);
  AddSteps(watch, 100, 28, 18);
  AddSteps(watch, 100, 28, 16);
  AddSteps(watch, 200, 60, 1);
  AddSteps(watch, 3000, 2900, 7);
  ASSERT_THAT(watch.Changes(), SizeIs(1));
  EXPECT_EQ(watch.Changes()[0].now, Millis(2900));
  watch.Rebase();
  AddSteps(watch, 3000, 2900, 24);
  EXPECT_THAT(watch.Changes(), IsEmpty()) << "the steps before it became slow are forgotten";
}

TEST(LinkWatch, WhatWasSlowForAWhileAndIsSoNoMoreIsNoChange) {
  LinkWatch watch(2);
  AddSteps(watch, 100, 4, 18);
  AddSteps(watch, 200, 104, 6);
  AddSteps(watch, 100, 4, 7);
  AddSteps(watch, 200, 104, 3);
  EXPECT_THAT(watch.Changes(), IsEmpty());
}

TEST(LinkWatch, WhatAStepDoesNotFeelIsNoChange) {
  LinkWatch watch(2);
  AddSteps(watch, 1000, 1, 18);
  AddSteps(watch, 1000, 99, 16);
  EXPECT_THAT(watch.Changes(), IsEmpty()) << "less than a tenth of the step";
  AddSteps(watch, 1000, 103, 16);
  EXPECT_THAT(watch.Changes(), SizeIs(1));
}

TEST(LinkWatch, LinksThatAreBusyAnywayMustChangeByMore) {
  LinkWatch watch(2);
  AddSteps(watch, 1000, 500, 18);
  AddSteps(watch, 1500, 990, 16);
  EXPECT_THAT(watch.Changes(), IsEmpty());
  AddSteps(watch, 1500, 1010, 16);
  EXPECT_THAT(watch.Changes(), SizeIs(1));
}

TEST(LinkWatch, WhatIsNoPeerIsLeftOut) {
  LinkWatch watch(2);
  for (int i = 0; i < 40; ++i) {
    const Nanos busy = Millis(i < 20 ? 1 : 90);
    watch.Add(0, Millis(100), {{.peer = -1, .busy = busy}, {.peer = 0, .busy = busy}, {.peer = 2, .busy = busy}});
  }
  EXPECT_THAT(watch.Changes(), IsEmpty());
}

SlowLink Slow(const char* from, const char* to, double factor = 2) {
  return {.from = NodeId(from), .to = NodeId(to), .factor = factor, .bytes = 1 << 20, .before = Millis(2), .now = Millis(40)};
}

TEST(NodesOfSlowLinks, ANodeWithSlowLinksToSeveralIsNamed) {
  const std::vector<SlowNodes> verdicts = NodesOfSlowLinks({Slow("b", "a"), Slow("b", "c", 9), Slow("d", "b")});
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].nodes, std::vector<NodeId>{NodeId("b")});
  EXPECT_EQ(verdicts[0].factor, 9);
  EXPECT_EQ(
      verdicts[0].text,
      "the links of node b (to a, c, d) are slower than before (b to c: 1.0 MiB of a step take 40.0 ms in place of 2.0 ms)");
}

TEST(NodesOfSlowLinks, OfALinkAloneBothEndsAre) {
  const std::vector<SlowNodes> verdicts = NodesOfSlowLinks({Slow("a", "b"), Slow("b", "a", 3)});
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].nodes, (std::vector<NodeId>{NodeId("a"), NodeId("b")}));
  EXPECT_EQ(verdicts[0].factor, 3);
  EXPECT_THAT(verdicts[0].text, HasSubstr("the link between nodes a and b is slower than before (b to a: "));
}

TEST(NodesOfSlowLinks, SeveralAreNamedUntilAllLinksAreExplained) {
  const std::vector<SlowNodes> verdicts = NodesOfSlowLinks({Slow("x", "y"), Slow("b", "a"), Slow("b", "c"), Slow("c", "d")});
  ASSERT_THAT(verdicts, SizeIs(3));
  EXPECT_EQ(verdicts[0].nodes, std::vector<NodeId>{NodeId("b")});
  EXPECT_EQ(verdicts[1].nodes, (std::vector<NodeId>{NodeId("x"), NodeId("y")}));
  EXPECT_EQ(verdicts[2].nodes, (std::vector<NodeId>{NodeId("c"), NodeId("d")}));
  EXPECT_THAT(NodesOfSlowLinks({}), IsEmpty());
}

}  // namespace
}  // namespace lynx::server
