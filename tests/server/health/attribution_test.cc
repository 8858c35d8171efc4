#include "server/health/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kMinute{60'000'000'000};
const Nanos kNow = kMinute * 1000;

RankFailureFacts Crash(const std::string& node, int64_t step, const std::string& job = "j1") {
  return {.job = JobId(job), .node = NodeId(node), .exit_code = 139, .step = step, .at = kNow};
}
RankFailureFacts Kill(const std::string& node, const std::string& job = "j1") {
  return {.job = JobId(job), .node = NodeId(node), .exit_code = 137, .step = 7, .at = kNow};
}
Attribution Of(const RankFailureFacts& failure, const std::deque<RankFailureFacts>& before = {}, bool spans_nodes = true) {
  const Attributed attributed = Attribute(failure, before, spans_nodes);
  EXPECT_EQ(attributed.why.empty(), attributed.to == Attribution::kUnknown);
  return attributed.to;
}

TEST(Attribution, ACauseThatIsKnownDecides) {
  const std::pair<FaultCause, Attribution> cases[] = {
      {FaultCause::kMemory, Attribution::kMemory},  {FaultCause::kData, Attribution::kData},
      {FaultCause::kDisk, Attribution::kNode},      {FaultCause::kDevice, Attribution::kNode},
      {FaultCause::kProgram, Attribution::kCode},   {FaultCause::kPath, Attribution::kJob},
      {FaultCause::kUnknown, Attribution::kUnknown}};
  for (const auto& [cause, expected] : cases) {
    RankFailureFacts failure = Kill("n0");
    failure.cause = cause;
    EXPECT_EQ(Of(failure), expected) << EnumName(cause);
    EXPECT_FALSE(Attribute(failure, {}, true).again);
  }
}

TEST(Attribution, AProgramThatFailsAlikeTwiceWouldAgain) {
  RankFailureFacts failure{.job = JobId("j1"),
                           .node = NodeId("n0"),
                           .cause = FaultCause::kProgram,
                           .exit_code = 1,
                           .own_words = true,
                           .step = 4,
                           .at = kNow};
  EXPECT_TRUE(Attribute(failure, {failure}, true).again);
  RankFailureFacts earlier = failure;
  earlier.step = 3;
  EXPECT_FALSE(Attribute(failure, {earlier}, true).again) << "it went on since";
  earlier = failure;
  earlier.job = JobId("j2");
  EXPECT_FALSE(Attribute(failure, {earlier}, true).again);
  earlier = failure;
  earlier.at = kNow - kFaultsCountFor;
  EXPECT_FALSE(Attribute(failure, {earlier}, true).again) << "long ago";
  failure.cause = FaultCause::kData;
  EXPECT_FALSE(Attribute(failure, {failure}, true).again) << "what they lie on may come back";
}

TEST(Attribution, ATokenBeyondTheVocabularyWouldBeMetAgain) {
  for (const int64_t step : {0, 700}) {
    RankFailureFacts failure = Kill("n0");
    failure.cause = FaultCause::kToken;
    failure.step = step;
    EXPECT_EQ(Of(failure), Attribution::kData);
    EXPECT_TRUE(Attribute(failure, {}, true).again) << "at its first occurrence";
  }
}

TEST(Attribution, TheSameCrashInTheSameStepOnAnotherNodeIsTheCode) {
  EXPECT_EQ(Of(Crash("n0", 7)), Attribution::kUnknown);
  EXPECT_EQ(Of(Crash("n0", 7), {Crash("n1", 7)}), Attribution::kCode);
  EXPECT_TRUE(Attribute(Crash("n0", 7), {Crash("n1", 7)}, true).again);
  EXPECT_THAT(Attribute(Crash("n0", 7), {Crash("n1", 7)}, true).why, HasSubstr("in step 7, on another node"));
  EXPECT_THAT(Attribute(Crash("n0", -1), {Crash("n1", -1)}, true).why, HasSubstr("before its first step"));
  EXPECT_EQ(Of(Crash("n0", 7), {Crash("n0", 7)}), Attribution::kUnknown) << "the node may be at fault";
  EXPECT_EQ(Of(Crash("n0", 7), {Crash("n1", 6)}), Attribution::kUnknown);
  // Somebody may have killed the process, so a kill says nothing about the job or the node.
  EXPECT_EQ(Of(Kill("n0"), {Kill("n1")}), Attribution::kUnknown);
  // If a rank ends with an error message of its own, the cause may be anything around the rank, such as the folder for
  // checkpoints. So the job is not blamed.
  RankFailureFacts said = Kill("n0");
  said.exit_code = 1;
  said.own_words = true;
  RankFailureFacts before = said;
  before.node = NodeId("n1");
  EXPECT_EQ(Of(said, {before}), Attribution::kUnknown);
}

TEST(Attribution, WhatTheAgentSaysOfTheDeviceIsTheNodes) {
  RankFailureFacts failure = Crash("n0", 7);
  failure.condition = "Xid 79: the GPU has fallen off the bus";
  EXPECT_EQ(Of(failure, {Crash("n1", 7)}), Attribution::kNode) << "before the likeness of crashes";
  EXPECT_THAT(Attribute(failure, {}, true).why, HasSubstr("Xid 79"));
  failure = Kill("n0");
  failure.node_gone = true;
  EXPECT_EQ(Of(failure), Attribution::kNode);
}

TEST(Attribution, FailuresThatStayWithANodeAreItsFault) {
  EXPECT_EQ(Of(Kill("n0"), {Kill("n0", "j2")}), Attribution::kNode);
  EXPECT_EQ(Of(Kill("n0"), {Kill("n1", "j2")}), Attribution::kUnknown);
  EXPECT_EQ(Of(Kill("n0"), {Kill("n0")}), Attribution::kUnknown) << "of one job three are needed";
  EXPECT_EQ(Of(Kill("n0"), {Kill("n0"), Kill("n0")}), Attribution::kNode);
  EXPECT_EQ(Of(Kill("n0"), {Kill("n0"), Kill("n0")}, false), Attribution::kUnknown) << "it has nowhere else to fail";
  EXPECT_EQ(Of(Kill("n0"), {Kill("n0"), Kill("n0"), Kill("n1")}), Attribution::kUnknown) << "elsewhere too";
  RankFailureFacts old = Kill("n0", "j2");
  old.at = kNow - kFaultsCountFor;
  EXPECT_EQ(Of(Kill("n0"), {old}), Attribution::kUnknown);
}

}  // namespace
}  // namespace lynx::server
