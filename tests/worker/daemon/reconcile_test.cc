#include "worker/daemon/reconcile.h"

#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

constexpr Nanos kGrace{5'000'000'000};
constexpr Nanos kNow{100'000'000'000};

RankKey Key(int64_t generation = 1, int32_t rank = 0) { return {JobId("j"), Generation(generation), rank}; }

std::string OperationText(const RankOperation& operation) {
  const char* const names[] = {"listen", "start", "refuse", "ask-to-yield", "take-yield-back", "terminate", "kill", "forget"};
  return absl::StrCat(names[static_cast<int>(operation.kind)], " g", operation.key.generation.value, ".r", operation.key.rank);
}

std::vector<std::string> Operations(const std::vector<DesiredRank>& desired, const std::vector<ActualRank>& actual) {
  std::vector<std::string> texts;
  for (const RankOperation& operation : Reconcile(desired, actual, kNow, kGrace)) {
    texts.push_back(OperationText(operation));
  }
  return texts;
}

const PeerAddress kHere{"127.0.0.1", 4000};
const PeerAddress kElsewhere{"127.0.0.1", 4001};

struct Case {
  const char* name;
  std::vector<DesiredRank> desired;
  std::vector<ActualRank> actual;
  std::vector<std::string> operations;
};

DesiredRank Wanted() { return {.key = Key()}; }
DesiredRank WantedAt(const PeerAddress& address) { return {.key = Key(), .start = true, .address = address}; }
ActualRank Listening() { return {.key = Key(), .phase = RankPhase::kListening, .address = kHere}; }
ActualRank Running() { return {.key = Key(), .phase = RankPhase::kRunning, .address = kHere}; }
ActualRank Asked(Nanos at) {
  return {.key = Key(), .phase = RankPhase::kRunning, .address = kHere, .stop = StopStage::kAsked, .asked_at = at};
}
ActualRank Killed() { return {.key = Key(), .phase = RankPhase::kRunning, .address = kHere, .stop = StopStage::kKilled}; }
ActualRank Exited() { return {.key = Key(), .phase = RankPhase::kExited, .address = kHere}; }
ActualRank Released() { return {.key = Key(), .phase = RankPhase::kExited, .address = kHere, .released = true}; }

template <class Rank>
Rank Yields(Rank rank) {
  rank.yield = true;
  return rank;
}

TEST(Reconcile, EveryPairOfWantedAndActual) {
  const std::vector<Case> cases = {
      {"nothing", {}, {}, {}},
      {"new, no peers", {Wanted()}, {}, {"listen g1.r0"}},
      {"new, with peers: its socket is lost", {WantedAt(kHere)}, {}, {"refuse g1.r0"}},
      {"listening, waits for peers", {Wanted()}, {Listening()}, {}},
      {"listening, peers are there", {WantedAt(kHere)}, {Listening()}, {"start g1.r0"}},
      {"listening elsewhere than peers think", {WantedAt(kElsewhere)}, {Listening()}, {"refuse g1.r0"}},
      {"listening, not wanted", {}, {Listening()}, {"forget g1.r0"}},
      {"running", {WantedAt(kHere)}, {Running()}, {}},
      {"running, assignment without peers again", {Wanted()}, {Running()}, {}},
      {"running, not wanted", {}, {Running()}, {"terminate g1.r0"}},
      {"running, is to give way", {Yields(WantedAt(kHere))}, {Running()}, {"ask-to-yield g1.r0"}},
      {"running, asked to give way", {Yields(Wanted())}, {Yields(Running())}, {}},
      {"running, need not give way after all", {Wanted()}, {Yields(Running())}, {"take-yield-back g1.r0"}},
      {"running, asked to give way, not wanted", {}, {Yields(Running())}, {"terminate g1.r0"}},
      {"asked to end, is to give way", {Yields(Wanted())}, {Asked(kNow)}, {}},
      {"listening, is to give way: when it runs", {Yields(Wanted())}, {Listening()}, {}},
      {"exited, is to give way", {Yields(Wanted())}, {Exited()}, {}},
      {"asked to end, has time", {}, {Asked(kNow - kGrace + Nanos(1))}, {}},
      {"asked to end, time is over", {}, {Asked(kNow - kGrace)}, {"kill g1.r0"}},
      {"killed, not gone yet", {}, {Killed()}, {}},
      {"asked to end, wanted again: keeps its course", {WantedAt(kHere)}, {Asked(kNow - kGrace)}, {"kill g1.r0"}},
      {"exited, wanted: kept, never started again", {WantedAt(kHere)}, {Exited()}, {}},
      {"exited, not wanted: its last reports may be on their way", {}, {Exited()}, {}},
      {"exited, not wanted, released", {}, {Released()}, {"forget g1.r0"}},
      {"exited, released, wanted", {WantedAt(kHere)}, {Released()}, {}},
  };
  for (const Case& c : cases) EXPECT_EQ(Operations(c.desired, c.actual), c.operations) << c.name;
}

TEST(Reconcile, EndsTheOldGenerationBeforeItBeginsTheNew) {
  ActualRank old = Running();
  DesiredRank next{.key = Key(2)};
  EXPECT_EQ(Operations({next}, {old}), (std::vector<std::string>{"terminate g1.r0", "listen g2.r0"}));
}

TEST(Reconcile, TreatsRanksApart) {
  DesiredRank one{.key = Key(1, 1), .start = true, .address = kHere};
  ActualRank one_listens{.key = Key(1, 1), .phase = RankPhase::kListening, .address = kHere};
  EXPECT_EQ(Operations({Wanted(), one}, {one_listens}), (std::vector<std::string>{"listen g1.r0", "start g1.r1"}));
}

TEST(Reconcile, RefusalsSayWhy) {
  EXPECT_NE(Reconcile({WantedAt(kHere)}, {}, kNow, kGrace)[0].reason.find("restarted"), std::string::npos);
  const std::string reason = Reconcile({WantedAt(kElsewhere)}, {Listening()}, kNow, kGrace)[0].reason;
  EXPECT_NE(reason.find("127.0.0.1:4001"), std::string::npos) << reason;
  EXPECT_NE(reason.find("127.0.0.1:4000"), std::string::npos) << reason;
}

}  // namespace
}  // namespace lynx::worker
