// Kills real rank processes in every phase of a step and of a checkpoint. The other ranks must end and say which rank was lost.
// The next generation must continue with the losses of a run without faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/program/memory_model.h"
#include "tests/worker/rank/rank_processes.h"
#include "worker/data/sample_order.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSteps = 8;

// Writes checkpoints at steps 3, 6 and 8. Ranks that show no progress for ten seconds count as hanging. In this time, even a
// busy machine and its disk make progress.
void HangsAreFoundSoon(RankConfig& config) { config.progress_limit = Nanos(10'000'000'000); }

// Expects that all ranks except `faulty` end because they have lost it, and say why.
void ExpectOthersName(RankProcesses& ranks, int faulty, const std::string& why) {
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    if (rank == faulty) continue;
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_TRUE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, AllOf(HasSubstr(absl::StrCat("rank ", faulty, " (stage ")), HasSubstr(why)));
  }
}

void EveryThree(RankConfig& config) { config.spec.checkpoint.every_steps = 3; }

struct KillCase {
  const char* fault;
  int64_t step;
  int victim;
  int64_t resumes_from;
  int waits = -1;  // the rank that is in an all-to-all with the victim; -1: there is none

  bool OfCheckpoint() const { return step % 3 == 0; }
};

std::string NameOf(const KillCase& c) {
  std::string name = c.fault;
  std::erase(name, '-');
  return name + std::to_string(c.victim);
}

const ParallelLayout kLayouts[] = {
    {.tp = 2, .pp = 2}, {.pp = 2, .dp = 2}, {.tp = 2, .dp = 2}, {.dp = 4, .zero = ZeroStage::kOptimizer}};

class RankKills : public testing::TestWithParam<std::tuple<ParallelLayout, KillCase>> {};

TEST_P(RankKills, SurvivorsSayWhoWasLostAndTheRunGoesOnWithTheSameLosses) {
  const auto& [layout, c] = GetParam();
  const ModelSpec model = layout.ep > 1 ? SmallMoe() : SmallGpt();
  const TestFolder undisturbed_folder;
  std::vector<double> expected;
  {
    RankProcesses ranks(undisturbed_folder, Configs(undisturbed_folder, kSteps, EveryThree, layout, model));
    ranks.ExpectAllExit(kRankExitOk);
    expected = ranks.Losses();
  }
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));

  const TestFolder folder;  // this folder is empty, unlike that of the run above
  RankProcesses first(folder, Configs(folder, kSteps, EveryThree, layout, model), /*generation=*/1, /*absent=*/{},
                      {{c.victim, {c.fault, c.step}}});
  EXPECT_EQ(first.ExitCode(c.victim), RankProcesses::kKilled);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const std::vector<RankReport> reports = first.Reports(rank);
    if (rank != c.victim) {
      EXPECT_EQ(first.ExitCode(rank), kRankExitPeerLost) << first.Log(rank);
      const auto failures = Only<RankFailure>(first.Reports(rank));
      ASSERT_EQ(failures.size(), 1u);
      EXPECT_TRUE(failures[0].peer_lost);
      EXPECT_THAT(failures[0].reason, HasSubstr("rank " + std::to_string(c.victim) + " (stage"));
      // A rank may learn of the loss from a rank of another expert group, which notices the loss during another transfer.
      if (rank == c.waits) EXPECT_THAT(failures[0].reason, testing::ContainsRegex("^step 7, action [01]B?AA-"));
    }
    // The fault happened in step `c.step`, or, if it is a fault of a checkpoint, while later steps ran. All earlier steps are
    // reported, with the losses of a run without faults.
    std::vector<double> losses;
    for (const StepReport& step : Only<StepReport>(first.Reports(rank))) losses.push_back(step.loss);
    ASSERT_GE(losses.size(), static_cast<size_t>(c.step));
    ASSERT_LE(losses.size(), static_cast<size_t>(c.OfCheckpoint() ? kSteps : c.step + 1));
    EXPECT_EQ(losses, std::vector<double>(expected.begin(), expected.begin() + static_cast<int64_t>(losses.size())));
  }

  RankProcesses second(folder, Configs(folder, kSteps, EveryThree, layout, model), /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  const int64_t resumed = Only<RankReady>(second.Reports(0)).at(0).next_step;
  // The checkpoint of step 6 may already be visible, because it is written while the step of the fault runs.
  EXPECT_TRUE(resumed == c.resumes_from || (!c.OfCheckpoint() && resumed == 6)) << resumed;
  EXPECT_EQ(second.Losses(), std::vector<double>(expected.begin() + resumed, expected.end()));
}

constexpr KillCase kKillCases[] = {{"kill-forward", 7, 3, 3},      {"kill-backward", 7, 0, 3}, {"kill-collective", 7, 2, 3},
                                   {"kill-optimizer", 7, 1, 3},    {"kill-shard", 6, 0, 3},    {"kill-before-publish", 6, 0, 3},
                                   {"kill-after-publish", 6, 0, 6}};

std::string LayoutName(const ParallelLayout& layout) {
  return "tp" + std::to_string(layout.tp) + "pp" + std::to_string(layout.pp) + "dp" + std::to_string(layout.dp) +
         (layout.ep == 1 ? "" : "ep" + std::to_string(layout.ep)) + (layout.zero == ZeroStage::kNone ? "" : "zero") +
         (layout.weave == WeaveMode::kOff ? "" : "woven");
}

INSTANTIATE_TEST_SUITE_P(, RankKills, testing::Combine(testing::ValuesIn(kLayouts), testing::ValuesIn(kKillCases)),
                         [](const auto& info) {
                           return LayoutName(std::get<0>(info.param)) + NameOf(std::get<1>(info.param));
                         });

// Passes run side by side, and the rank is killed in each kind of action that stands in the window of another pass's
// collective.
const ParallelLayout kWoven{.tp = 2, .pp = 2, .weave = WeaveMode::kPairs};
constexpr KillCase kWovenKillCases[] = {{"kill-forward-beside", 7, 0, 3}, {"kill-backward-beside", 7, 1, 3},
                                        {"kill-weight", 7, 2, 3},         {"kill-recomputation", 7, 3, 3},
                                        {"kill-collective", 7, 0, 3},     {"kill-shard", 6, 0, 3}};
INSTANTIATE_TEST_SUITE_P(Woven, RankKills, testing::Combine(testing::Values(kWoven), testing::ValuesIn(kWovenKillCases)),
                         [](const auto& info) { return NameOf(std::get<1>(info.param)); });

// The rank is killed in an all-to-all between experts.
constexpr KillCase kExpertKillCases[] = {{"kill-dispatch", 7, 1, 3, 0}, {"kill-gradient-rows", 7, 1, 3, 0}};
const ParallelLayout kExpertLayouts[] = {{.dp = 4, .ep = 2},
                                         {.dp = 4, .ep = 2, .zero = ZeroStage::kOptimizer},
                                         {.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}};
INSTANTIATE_TEST_SUITE_P(Experts, RankKills,
                         testing::Combine(testing::ValuesIn(kExpertLayouts), testing::ValuesIn(kExpertKillCases)),
                         [](const auto& info) {
                           return LayoutName(std::get<0>(info.param)) + NameOf(std::get<1>(info.param));
                         });
constexpr KillCase kStagedExpertKillCases[] = {{"kill-dispatch", 7, 3, 3, 1}, {"kill-gradient-rows", 7, 3, 3, 1}};
INSTANTIATE_TEST_SUITE_P(ExpertsInStages, RankKills,
                         testing::Combine(testing::Values(ParallelLayout{.pp = 2, .dp = 2, .ep = 2}),
                                          testing::ValuesIn(kStagedExpertKillCases)),
                         [](const auto& info) { return NameOf(std::get<1>(info.param)); });

// Finds product number `product`, counted from 1, of the actions of this kind. True if a collective of another microbatch is
// under way when this product runs. Each action of a transformer layer counts as two products.
bool RunsBesideACollective(const Program& program, ActionKind kind, int product) {
  std::set<int32_t> under_way;  // microbatches
  for (const Action& action : program) {
    const ActionInfo& info = InfoOf(action.kind);
    if (info.group == Group::kTensor) {
      if (info.phase == Phase::kStart) under_way.insert(action.microbatch);
      if (info.phase == Phase::kWait) under_way.erase(action.microbatch);
    }
    if (action.kind != kind || LayerTypeOf(action.layer) != LayerType::kTransformer) continue;
    product -= 2;
    if (product <= 0) return std::any_of(under_way.begin(), under_way.end(), [&](int32_t m) { return m != action.microbatch; });
  }
  return false;
}

TEST(RankKillWindows, TheWovenProgramsHaveTheWindowsThatTheKillsNeed) {
  const TestFolder folder;
  for (const RankConfig& config : Configs(folder, kSteps, nullptr, kWoven)) {
    EXPECT_TRUE(RunsBesideACollective(config.program, ActionKind::kForward, 3));
    EXPECT_TRUE(RunsBesideACollective(config.program, ActionKind::kBackward, 3));
    EXPECT_TRUE(RunsBesideACollective(config.program, ActionKind::kWeight, 1));
    EXPECT_TRUE(RunsBesideACollective(config.program, ActionKind::kRecompute, 1));
  }
}

// A stopped process keeps its connections open but sends nothing. The steps are so short that the other ranks wait only ten
// seconds for it.
TEST(RankFaults, AStoppedRankEndsTheOthersAndIsTheOneThatSaysNothing) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless), /*generation=*/1, /*absent=*/{}, {{3, {"stop-forward", 5}}});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_TRUE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason,
                AllOf(HasSubstr("step 5, action "), HasSubstr("not a byte moved between rank "), HasSubstr(" for 10.00 s")));
  }
  EXPECT_TRUE(Only<RankFailure>(ranks.Reports(3)).empty());
  EXPECT_EQ(Only<StepReport>(ranks.Reports(3)).size(), 5u);
}

TEST(RankFaults, ARankStoppedInADispatchEndsTheOthers) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless, nullptr, {.dp = 4, .ep = 2}, SmallMoe()), /*generation=*/1,
                      /*absent=*/{}, {{1, {"stop-dispatch", 5}}});
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_TRUE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, AllOf(HasSubstr("not a byte moved between rank "), HasSubstr(" for 10.00 s during ")));
  }
  EXPECT_TRUE(Only<RankFailure>(ranks.Reports(1)).empty());
  EXPECT_EQ(Only<StepReport>(ranks.Reports(1)).size(), 5u);
}

// All ranks are stopped for longer than ranks wait for each other. This happens if a batch system suspends a job, or a host
// suspends a virtual machine.
TEST(RankFaults, RanksThatAreAllStoppedAndContinuedGoOn) {
  const TestFolder folder;
  const RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 5);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) ranks.Signal(rank, SIGSTOP);
  sleep(12);
  const auto steps = static_cast<int64_t>(Only<StepReport>(ranks.Reports(0)).size());
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) ranks.Signal(rank, SIGCONT);
  ranks.WaitForSteps(0, steps + 20);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) EXPECT_TRUE(Only<RankFailure>(ranks.Reports(rank)).empty());
}

// While a rank writes to a disk, the other ranks wait minutes for it, but only if it sends signs of life.
TEST(RankFaults, ARankStoppedInACheckpointIsLostForWantOfSignsOfLife) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless, EveryThree), /*generation=*/1, /*absent=*/{},
                      {{0, {"stop-before-publish", 6}}});
  int own = 0;
  for (int rank = 1; rank < RankProcesses::kRanks; ++rank) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_TRUE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, HasSubstr("rank 0 (stage 0, tp 0) has given no sign of life for 30.00 s"));
    own += failures[0].reason.find("gave up") == std::string::npos ? 1 : 0;
  }
  EXPECT_GE(own, 1);
  EXPECT_TRUE(Only<RankFailure>(ranks.Reports(0)).empty());
}

// A rank that only lives is found before the third step, when the time of a step is not known yet.
TEST(RankFaults, ARankThatHangsBeforeItsThirdStepIsNamed) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless, HangsAreFoundSoon), /*generation=*/1, /*absent=*/{},
                      {{2, {"hang-forward", 0}}});
  ExpectOthersName(ranks, 2, "rank 2 (stage 1, tp 0) lives, but has made no progress for 10.00 s while rank ");
  EXPECT_TRUE(Only<StepReport>(ranks.Reports(2)).empty());
}

TEST(RankFaults, ARankThatHangsWithACheckpointIsNamed) {
  for (const std::string& fault : {std::string("hang-before-publish"), std::string("hang-shard")}) {
    const TestFolder folder;
    const int hangs = fault == "hang-shard" ? 3 : 0;
    RankProcesses ranks(folder,
                        Configs(folder, kEndless,
                                [](RankConfig& config) {
                                  HangsAreFoundSoon(config);
                                  EveryThree(config);
                                }),
                        /*generation=*/1, /*absent=*/{}, {{hangs, {fault, 6}}});
    ExpectOthersName(ranks, hangs, "lives, but has made no progress for 10.00 s while rank ");
    EXPECT_GE(Only<StepReport>(ranks.Reports(hangs)).size(), 6u) << fault;
  }
}

// A stopped rank sends no signs of life. So the other ranks find the loss, even before the first step.
TEST(RankFaults, ARankStoppedBeforeItsThirdStepEndsTheOthers) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless), /*generation=*/1, /*absent=*/{}, {{3, {"stop-forward", 0}}});
  ExpectOthersName(ranks, 3, "has given no sign of life for 30.00 s");
}

TEST(RankFaults, AShardThatIsWrittenForLongWhileTrainingWaitsLosesNobody) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps, EveryThree), /*generation=*/1, /*absent=*/{},
                      {{1, {"slow-uncopied-shard", 3}}});
  ranks.ExpectAllExit(kRankExitOk);
  EXPECT_THAT(ranks.Log(1), HasSubstr("checkpoints are written while training waits"));
}

TEST(RankFaults, ALossThatIsNotANumberEndsTheRunAndNamesStepAndRank) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps), /*generation=*/1, /*absent=*/{}, {{2, {"nan-loss", 4}}});
  int own = 0;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    // The first rank that finds the bad loss ends. The other ranks may hear of this end before they find the loss themselves.
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    own += exit_code == kRankExitFailure ? 1 : 0;
    EXPECT_EQ(Only<StepReport>(ranks.Reports(rank)).size(), 4u);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_THAT(failures[0].reason, AllOf(HasSubstr("step 4"), HasSubstr("the loss is nan, by what rank 2 adds to it")));
  }
  EXPECT_GE(own, 1);
}

// Expects the same losses from all ranks, and returns them as bits, because a NaN is not equal to itself.
std::vector<uint64_t> LossBits(const RankProcesses& ranks) {
  std::vector<uint64_t> bits;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    std::vector<uint64_t> own;
    for (const StepReport& step : Only<StepReport>(ranks.Reports(rank))) own.push_back(std::bit_cast<uint64_t>(step.loss));
    if (rank == 0) bits = own;
    EXPECT_EQ(own, bits) << "rank " << rank;
  }
  return bits;
}

TEST(RankFaults, AStepThatIsNotFiniteIsLeftOutAlikeOnAllRanksAndInEveryRun) {
  const std::pair<RankProcesses::RankFault, const char*> cases[] = {
      {{"nan-loss", 4}, "the loss is nan, by what rank 2 adds to it"},
      {{"infinite-gradient", 4}, "the gradient norm is inf, by what rank 2 adds to it (the loss is "}};
  for (const auto& [fault, reason] : cases) {
    SCOPED_TRACE(fault.name);
    std::vector<std::vector<uint64_t>> runs;
    for (int run = 0; run < 2; ++run) {
      const TestFolder folder;
      RankProcesses ranks(
          folder, Configs(folder, kSteps, [](RankConfig& config) { config.spec.train.on_non_finite = NonFinitePolicy::kSkip; }),
          /*generation=*/1, /*absent=*/{}, {{2, fault}});
      ranks.ExpectAllExit(kRankExitOk);
      runs.push_back(LossBits(ranks));
      for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
        const auto skipped = Only<StepSkipped>(ranks.Reports(rank));
        ASSERT_EQ(skipped.size(), rank == 0 ? 1u : 0u);
        if (rank != 0) continue;
        EXPECT_EQ(skipped[0].step, 4);
        EXPECT_THAT(skipped[0].reason, HasSubstr(reason));
      }
    }
    ASSERT_EQ(runs[0].size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(runs[0], runs[1]);
    EXPECT_TRUE(std::isfinite(std::bit_cast<double>(runs[0].back())));
  }
}

// Returns the report of a rank that ended by its own fault.
RankFailure OwnFault(RankProcesses& ranks, int rank) {
  EXPECT_EQ(ranks.ExitCode(rank), kRankExitFailure) << ranks.Log(rank);
  const auto failures = Only<RankFailure>(ranks.Reports(rank));
  EXPECT_EQ(failures.size(), 1u) << ranks.Log(rank);
  return failures.empty() ? RankFailure{} : failures.front();
}

// Even if there is no memory for the text of an error, the rank must report that it has no memory. The cause tells the server
// what to do.
TEST(RankFaults, ARankWithoutMemorySaysSo) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps), /*generation=*/1, /*absent=*/{}, {{1, {"exhaust-memory", 3}}});
  const RankFailure own = OwnFault(ranks, 1);
  EXPECT_THAT(own.reason, HasSubstr("the process ran out of memory"));
  EXPECT_EQ(own.cause, FaultCause::kMemory);
  EXPECT_FALSE(own.peer_lost);
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0].cause, FaultCause::kUnknown);
  }
}

// Only memory for the stack of a thread is missing, usually 8 MiB. Everything else works.
TEST(RankFaults, ARankWithoutMemoryForAThreadSaysSo) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps), /*generation=*/1, /*absent=*/{}, {{1, {"refuse-stack", 3}}});
  const RankFailure own = OwnFault(ranks, 1);
  EXPECT_THAT(own.reason, HasSubstr("the process ran out of memory"));
  EXPECT_EQ(own.cause, FaultCause::kMemory);
}

TEST(RankFaults, ARankThatMayHaveNoMoreThreadsNamesTheLimit) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps), /*generation=*/1, /*absent=*/{}, {{3, {"refuse-thread", 3}}});
  const RankFailure own = OwnFault(ranks, 3);
  EXPECT_THAT(own.reason, AllOf(HasSubstr("cannot start a thread, though there is memory"), HasSubstr("pids.max")));
  EXPECT_EQ(own.cause, FaultCause::kUnknown);
}

// The arena needs more memory than the machine has.
TEST(RankFaults, ARankThatIsRefusedItsArenaNamesMemory) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kSteps), /*generation=*/1, /*absent=*/{}, {{2, {"refuse-memory", 0}}});
  const RankFailure own = OwnFault(ranks, 2);
  EXPECT_THAT(own.reason, AllOf(HasSubstr("cannot allocate"), HasSubstr("activation arena")));
  EXPECT_EQ(own.cause, FaultCause::kMemory);
}

TEST(RankFaults, ARankThatCannotReadItsDataNamesThem) {
  const TestFolder folder;
  RankProcesses ranks(folder,
                      Configs(folder, kSteps, [&](RankConfig& config) { config.spec.data.path = folder.path() + "/none"; }));
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    ranks.ExitCode(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    // Some ranks may hear that other ranks have given up, before they notice the fault.
    EXPECT_EQ(failures[0].cause, failures[0].peer_lost ? FaultCause::kUnknown : FaultCause::kData) << failures[0].reason;
  }
}

// The ranks train as long as the tokens are valid. Then they report what is wrong, and where.
TEST(RankFaults, ATokenBeyondTheVocabularyIsNamedInTheStepThatMeetsIt) {
  for (const bool held_out : {false, true}) {
    SCOPED_TRACE(held_out ? "of the validation data" : "of the training data");
    const TestFolder folder;
    std::vector<RankConfig> configs = Configs(folder, kSteps, [](RankConfig& config) {
      config.context.model.vocab = config.spec.model.vocab = 200;
      config.arena = PlanMemory(config.program, config.context)->arena;
    });
    const RankConfig& config = configs[0];
    std::string text(1000, 'x');
    const int64_t seq = config.spec.model.seq, samples = (static_cast<int64_t>(text.size()) - 1) / seq;
    // The number of the sample with the bad token: it belongs to an evaluation, or to the fifth step.
    const int64_t number = held_out ? 2 : 4 * config.spec.train.global_batch + 3;
    const int64_t position = SampleAt(number, samples, 0, config.spec.train.seed) * seq + 1;
    text[static_cast<size_t>(position)] = '\xfa';
    const std::string bad = folder.Write("bad", text);
    for (RankConfig& each : configs) {
      (held_out ? each.spec.data.validation_path : each.spec.data.path) = bad;
      if (held_out) each.spec.train.eval_every = 4;
    }
    RankProcesses ranks(folder, configs);
    int own = 0;
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      ranks.ExitCode(rank);
      const auto failures = Only<RankFailure>(ranks.Reports(rank));
      ASSERT_EQ(failures.size(), 1u) << ranks.Log(rank);
      // Before a rank ends its own step, it may learn that other ranks have given up.
      EXPECT_EQ(failures[0].cause, failures[0].peer_lost ? FaultCause::kUnknown : FaultCause::kToken) << failures[0].reason;
      if (failures[0].peer_lost) continue;
      ++own;
      EXPECT_EQ(Only<StepReport>(ranks.Reports(rank)).size(), 4u);
      EXPECT_THAT(failures[0].reason,
                  AllOf(HasSubstr(held_out ? "after 4 steps: evaluation, batch 0: " : "step 4: "),
                        HasSubstr("/bad: token 250 at position " + std::to_string(position) + " is outside"),
                        HasSubstr("vocabulary of 200 (model.vocab)")));
    }
    EXPECT_GE(own, 1);
  }
}

}  // namespace
}  // namespace lynx::worker
