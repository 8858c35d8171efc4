// The guess of a step whose passes run side by side, compared with the simulated step.
#include <gtest/gtest.h>

#include <algorithm>

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
  return best ? Seconds(guess.step) / Seconds(best->simulation.step) : 0;
}

TEST(StepGuess, OfWovenPipelinesIsCloseToTheSimulation) {
  double least = 2, most = 0;
  for (const int32_t pp : {1, 2, 4}) {
    for (const int32_t microbatches : {4, 8, 16}) {
      for (const WeaveMode weave : {WeaveMode::kOff, WeaveMode::kPairs, WeaveMode::kQuads}) {
        for (const int64_t rate : {int64_t{500'000'000}, int64_t{4'000'000'000}}) {
          const Candidate candidate{.layout = {.tp = 2, .pp = pp, .weave = weave}, .micro_batch = 1, .microbatches = microbatches};
          const double ratio = GuessRatio(candidate, rate);
          std::printf("pp %d mb %d %s %ld: %.3f\n", pp, microbatches, std::string(EnumName(weave)).c_str(), rate, ratio);
          least = std::min(least, ratio);
          most = std::max(most, ratio);
        }
      }
    }
  }
  EXPECT_GT(least, 0.9);
  EXPECT_LT(most, 1.1);
}

}  // namespace
}  // namespace lynx
