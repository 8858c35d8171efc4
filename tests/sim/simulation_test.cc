// Checks that the promises hold under faults, for many seeds, and that the simulation finds mistakes.
#include "tests/sim/simulation.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lynx::server::sim {
namespace {

constexpr uint64_t kSeeds = 500;

std::string Text(const Outcome& outcome) {
  std::string text;
  for (const std::string& violation : outcome.violations) text += violation + "\n";
  return text;
}

TEST(Simulation, EverySeedKeepsThePromises) {
  Outcome sum;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = Simulate({.seed = seed});
    EXPECT_TRUE(outcome.violations.empty()) << "lynx_sim --seed " << seed << " tells its history\n" << Text(outcome);
    sum.faults += outcome.faults;
    sum.generations += outcome.generations;
    sum.replans += outcome.replans;
    sum.preemptions += outcome.preemptions;
    sum.memory_faults += outcome.memory_faults;
    sum.checks += outcome.checks;
    sum.failed_checks += outcome.failed_checks;
    sum.excluded += outcome.excluded;
    sum.succeeded += outcome.succeeded;
    sum.failed += outcome.failed;
    sum.stops += outcome.stops;
    sum.takeovers += outcome.takeovers;
    sum.both_stopped += outcome.both_stopped;
    sum.outages += outcome.outages;
    sum.in_doubt += outcome.in_doubt;
    sum.reads += outcome.reads;
  }
  // The following checks make sure that enough happened. If little happened, the test would prove little.
  EXPECT_GT(sum.faults, static_cast<int64_t>(20 * kSeeds));
  EXPECT_GT(sum.generations, static_cast<int64_t>(5 * kSeeds));
  EXPECT_GT(sum.replans, static_cast<int64_t>(kSeeds / 4));
  EXPECT_GT(sum.preemptions, static_cast<int64_t>(kSeeds / 8));
  EXPECT_GT(sum.memory_faults, static_cast<int64_t>(kSeeds / 4));
  EXPECT_GT(sum.checks, static_cast<int64_t>(kSeeds));
  EXPECT_GT(sum.failed_checks, static_cast<int64_t>(kSeeds / 10));
  EXPECT_GT(sum.excluded, static_cast<int64_t>(kSeeds / 10));
  EXPECT_GT(sum.stops, static_cast<int64_t>(2 * kSeeds));
  EXPECT_GT(sum.takeovers, static_cast<int64_t>(kSeeds));
  EXPECT_LT(sum.takeovers, sum.stops + sum.outages);  // some servers continued before another one took over
  EXPECT_GT(sum.both_stopped, static_cast<int64_t>(kSeeds / 4));
  EXPECT_GT(sum.outages, static_cast<int64_t>(kSeeds));
  EXPECT_GT(sum.in_doubt, static_cast<int64_t>(kSeeds / 4));
  EXPECT_GT(sum.reads, static_cast<int64_t>(10 * kSeeds));
  EXPECT_GT(sum.succeeded, static_cast<int64_t>(2 * kSeeds));
  EXPECT_GT(sum.succeeded, 4 * sum.failed);
}

TEST(Simulation, ASeedIsOneHistory) {
  const Outcome once = Simulate({.seed = 7, .tells = true});
  const Outcome again = Simulate({.seed = 7, .tells = true});
  EXPECT_EQ(once.history, again.history);
  EXPECT_GT(once.history.size(), 50u);
  EXPECT_NE(Simulate({.seed = 8, .tells = true}).history, once.history);
}

struct Seeded {
  const char* name;
  Mistake mistake;
  WorldMistake world = WorldMistake::kNone;
};

class SeededMistakes : public testing::TestWithParam<Seeded> {};

constexpr uint64_t kMaxSeeds = 20'000;

// True if the simulation finds the mistake with one of the seeds. The seed must have no violation without the mistake.
bool Finds(const Seeded& seeded) {
  for (uint64_t seed = 1; seed <= kMaxSeeds; ++seed) {
    const Options options{.seed = seed, .mistake = seeded.mistake, .world_mistake = seeded.world};
    if (!Simulate(options).violations.empty()) return Simulate({.seed = seed}).violations.empty();
  }
  return false;
}

// Each mistake runs in a separate process. A check of the controller itself may find the mistake, and a failed check ends the
// process.
TEST_P(SeededMistakes, AreFound) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Finds(GetParam()) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const bool found = (WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT_TRUE(found) << "no seed up to " << kMaxSeeds << " finds it";
}

INSTANTIATE_TEST_SUITE_P(
    All, SeededMistakes,
    testing::Values(Seeded{"ReuseAGeneration", Mistake::kReuseGeneration},
                    Seeded{"StartBesideOldRanks", Mistake::kStartBesideOldRanks},
                    Seeded{"ForgetWhatIsHeld", Mistake::kForgetWhatIsHeld}, Seeded{"ForgetKeys", Mistake::kForgetKeys},
                    Seeded{"SucceedEarly", Mistake::kSucceedEarly}, Seeded{"ForgetTheQueue", Mistake::kForgetTheQueue},
                    Seeded{"NeverLoseNodes", Mistake::kNeverLoseNodes}, Seeded{"ForgetStrays", Mistake::kForgetOrphans},
                    Seeded{"StartSilently", Mistake::kStartSilently}, Seeded{"ForgetCordons", Mistake::kForgetCordons},
                    Seeded{"ForgetDependencies", Mistake::kForgetDependencies}, Seeded{"ForgetHolds", Mistake::kForgetHolds},
                    Seeded{"ForgetQuorum", Mistake::kForgetQuorum}, Seeded{"ForgetMemory", Mistake::kForgetMemory},
                    Seeded{"ReplyBeforeCommit", Mistake::kNone, WorldMistake::kReplyBeforeCommit},
                    Seeded{"OrderBeforeCommit", Mistake::kNone, WorldMistake::kOrderBeforeCommit},
                    Seeded{"NoFence", Mistake::kNone, WorldMistake::kNoFence},
                    Seeded{"NoLease", Mistake::kNone, WorldMistake::kNoLease},
                    Seeded{"AcknowledgeWithoutEpoch", Mistake::kNone, WorldMistake::kAcknowledgeWithoutEpoch},
                    Seeded{"TwoLeaders", Mistake::kNone, WorldMistake::kTwoLeaders},
                    Seeded{"StaleRead", Mistake::kNone, WorldMistake::kStaleRead},
                    Seeded{"BelieveWritten", Mistake::kNone, WorldMistake::kBelieveWritten},
                    Seeded{"WriteTwice", Mistake::kNone, WorldMistake::kWriteTwice}),
    [](const testing::TestParamInfo<Seeded>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lynx::server::sim
