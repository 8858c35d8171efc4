#include "worker/copies/copy_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/copies/some_copy.h"

namespace lynx::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CopyRecord Copy(int64_t generation, int64_t step, int32_t tp_rank) {
  return SomeCopy(generation, step, tp_rank, Bytes(100 + tp_rank), std::string(64, 'a'));
}

std::optional<WholeCopies> Newest(const std::vector<NodeCopies>& nodes, int64_t own = 9,
                                  const std::set<PlacedCopy>& damaged = {}) {
  return NewestWhole(nodes, Generation(own), damaged, nullptr);
}

TEST(CopyChoiceTest, TheNewestStepThatAllNodesTogetherHave) {
  const std::vector<NodeCopies> nodes = {{.copies = {Copy(1, 7, 0), Copy(1, 8, 0), Copy(1, 9, 0)}},
                                         {.copies = {Copy(1, 7, 1), Copy(1, 8, 1)}}};
  std::vector<std::string> incomplete;
  const auto whole = NewestWhole(nodes, Generation(2), {}, &incomplete);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->identity.step, 8);
  EXPECT_THAT(whole->nodes, ElementsAre(0, 1));
  EXPECT_EQ(whole->files[1], Copy(1, 8, 1).shard);
  ASSERT_EQ(incomplete.size(), 1u);
  EXPECT_THAT(incomplete[0], HasSubstr("of step 9 (generation 1) no node has shard-0000-0001.safetensors"));
}

TEST(CopyChoiceTest, NothingWithoutAWholeStep) {
  EXPECT_FALSE(Newest({}).has_value());
  EXPECT_FALSE(Newest({{.copies = {Copy(1, 7, 0)}}, {.copies = {Copy(1, 8, 1)}}}).has_value());
}

TEST(CopyChoiceTest, StepsOfDifferentGenerationsAreNotMixed) {
  const std::vector<NodeCopies> nodes = {{.copies = {Copy(1, 8, 0), Copy(2, 8, 1)}}};
  EXPECT_FALSE(Newest(nodes).has_value());
}

TEST(CopyChoiceTest, OnlyOlderGenerationsCount) {
  const std::vector<NodeCopies> nodes = {{.copies = {Copy(2, 8, 0), Copy(2, 8, 1), Copy(1, 5, 0), Copy(1, 5, 1)}}};
  EXPECT_EQ(Newest(nodes, 3)->identity.step, 8);
  EXPECT_EQ(Newest(nodes, 2)->identity.step, 5);
  EXPECT_FALSE(Newest(nodes, 1).has_value());
}

TEST(CopyChoiceTest, ANewerGenerationsCopiesComeFirst) {
  const std::vector<NodeCopies> nodes = {{.copies = {Copy(2, 8, 0), Copy(2, 8, 1), Copy(1, 12, 0), Copy(1, 12, 1)}}};
  EXPECT_EQ(Newest(nodes)->identity.generation, Generation(2));
}

// Generation 2 continued from step 10. So the later steps of generation 1 do not belong to the run.
TEST(CopyChoiceTest, WhatWasDoneAfterANewerGenerationBeganDoesNotCount) {
  std::vector<NodeCopies> nodes = {{.copies = {Copy(1, 12, 0), Copy(1, 12, 1), Copy(1, 10, 0), Copy(1, 10, 1)}}, {}};
  EXPECT_EQ(Newest(nodes)->identity.step, 12);
  nodes[1].resumed = {{Generation(2), 10}};
  EXPECT_EQ(Newest(nodes)->identity.step, 10);
  nodes[1].resumed = {{Generation(2), 9}};
  EXPECT_FALSE(Newest(nodes).has_value());
  nodes[1].resumed = {{Generation(1), 0}};  // a mark of the generation that made the copies excludes none of them
  EXPECT_EQ(Newest(nodes)->identity.step, 12);
}

TEST(CopyChoiceTest, DamagedCopiesArePassedOver) {
  const std::vector<NodeCopies> nodes = {{.copies = {Copy(1, 8, 0), Copy(1, 8, 1), Copy(1, 7, 0), Copy(1, 7, 1)}},
                                         {.copies = {Copy(1, 8, 1)}}};
  const PlacedCopy here{0, Copy(1, 8, 1).key()}, there{1, Copy(1, 8, 1).key()};
  EXPECT_THAT(Newest(nodes)->nodes, ElementsAre(0, 0));
  EXPECT_THAT(Newest(nodes, 9, {here})->nodes, ElementsAre(0, 1));
  EXPECT_EQ(Newest(nodes, 9, {here, there})->identity.step, 7);
}

TEST(CopyChoiceTest, ListsComeBackAsTheyWere) {
  const NodeCopies here{.copies = {Copy(1, 7, 0), Copy(2, 9, 1)}, .resumed = {{Generation(2), 5}, {Generation(3), 9}}};
  const auto back = ParseNodeCopies(NodeCopiesText(here, 1 << 20));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->resumed, here.resumed);
  ASSERT_EQ(back->copies.size(), 2u);
  EXPECT_EQ(back->copies[0].key(), here.copies[1].key());  // newest first
  EXPECT_EQ(back->copies[0].identity, here.copies[1].identity);
  EXPECT_EQ(back->copies[1].shard, here.copies[0].shard);
}

TEST(CopyChoiceTest, ALongListKeepsItsNewest) {
  NodeCopies here;
  for (int64_t step = 1; step <= 50; ++step) here.copies.push_back(Copy(1, step, 0));
  const std::string text = NodeCopiesText(here, 5000);
  EXPECT_LE(text.size(), 5000u);
  const auto back = ParseNodeCopies(text);
  ASSERT_TRUE(back.ok());
  ASSERT_FALSE(back->copies.empty());
  EXPECT_LT(back->copies.size(), 50u);
  EXPECT_EQ(back->copies[0].identity.step, 50);
}

TEST(CopyChoiceTest, OtherTextsAreRefused) {
  const std::string good = NodeCopiesText({.copies = {Copy(1, 7, 0)}, .resumed = {{Generation(2), 5}}}, 1 << 20);
  EXPECT_TRUE(ParseNodeCopies("")->copies.empty());
  for (const std::string& bad :
       {std::string("copy"), std::string("copy 0 10\nshort"), std::string("resumed 1\n"), std::string("resumed 1 x\n"),
        std::string("other 1 2\n"), std::string("copy 0 -1\n"), good.substr(0, good.size() - 1), good + "x"}) {
    EXPECT_FALSE(ParseNodeCopies(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace lynx::worker
