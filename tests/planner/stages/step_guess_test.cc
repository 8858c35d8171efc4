// Compares the guess of a step with the simulated step.
#include <gtest/gtest.h>

#include <optional>

#include "planner/stages/layout_planner.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

// The guess divided by the simulated step of the best draft.
double GuessRatio(const Candidate& candidate, int64_t bytes_per_second) {
  HardwareProfile profile = SmallGpu();
  profile.intra_node = profile.inter_node = {Nanos(5'000), bytes_per_second};
  PlanRequest request{.spec = {}, .cluster = UniformCluster(1, candidate.layout.ranks(), profile)};
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.micro_batch = candidate.micro_batch;
  request.spec.train.global_batch = candidate.micro_batch * candidate.microbatches;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = candidate.layout.ranks();
  Normalize(request.spec);
  PlanCaches caches(request);
  const StepGuess guess = LayoutPlanner(request, candidate, caches).Guess();
  EXPECT_TRUE(guess.fits);
  const std::optional<Draft> best = LayoutPlanner(request, candidate, caches).Best(kMaxTime);
  EXPECT_TRUE(best.has_value());
  return best ? Seconds(guess.step) / Seconds(best->step) : 0;
}

// The guess must be at least `least` and at most `most` of the simulated step, for pipelines of 1 to 4 stages.
void ExpectGuesses(WeaveMode weave, double least, double most) {
  for (const int32_t pp : {1, 2, 4}) {
    for (const int32_t microbatches : {4, 8, 16}) {
      for (const int64_t rate : {int64_t{500'000'000}, int64_t{4'000'000'000}}) {
        const double ratio =
            GuessRatio({.layout = {.tp = 2, .pp = pp, .weave = weave}, .micro_batch = 1, .microbatches = microbatches}, rate);
        EXPECT_TRUE(ratio >= least && ratio <= most)
            << ratio << ": " << pp << " stages, " << microbatches << " microbatches, " << rate << " bytes/s";
      }
    }
  }
}

TEST(StepGuess, OfOnePassAtATimeIsHardlyTooShort) { ExpectGuesses(WeaveMode::kOff, 0.98, 1.005); }

// The next stage begins when a whole group has ended. A guess in which it begins after the first microbatch is too short.
// (The largest error is that of a single group of four over a slow link. There the guess is too long, because it counts the
// first transfers of the group as late.)
TEST(StepGuess, OfWovenPipelinesCountsWholeGroups) {
  ExpectGuesses(WeaveMode::kPairs, 0.98, 1.02);
  ExpectGuesses(WeaveMode::kQuads, 0.98, 1.15);
}

}  // namespace
}  // namespace lynx
