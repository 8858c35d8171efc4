// Tests the numbers of virtual stages that the search weighs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;

// A request for as many devices as stages, on one node with fast links.
PlanRequest Request(int32_t layers, int32_t stages) {
  PlanRequest request;
  request.spec.name = "job";
  request.spec.data.path = "corpus";
  request.spec.model = {.layers = layers, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.steps = 1;
  request.spec.train.global_batch = stages;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 1, .pp = stages, .dp = 1, .schedule = ScheduleKind::kInterleaved};
  request.spec.resources = {.min_ranks = stages, .max_ranks = stages};
  HardwareProfile profile = SmallGpu();
  profile.intra_node = {Nanos(100), 50'000'000'000};
  request.cluster = UniformCluster(1, stages, profile);
  Normalize(request.spec);
  EXPECT_EQ(ValidateJobSpec(request.spec), absl::OkStatus());
  return request;
}

std::set<int32_t> NumbersFor(const PlanRequest& request) {
  std::set<int32_t> numbers;
  for (const Candidate& candidate : SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine)) {
    numbers.insert(candidate.layout.virtual_stages);
  }
  return numbers;
}

TEST(VirtualStages, AreAnyUpToEightAndMoreIfAllChunksHaveAsManyLayers) {
  EXPECT_THAT(NumbersFor(Request(96, 8)), ElementsAre(2, 3, 4, 5, 6, 7, 8, 12));
  EXPECT_THAT(NumbersFor(Request(64, 2)), ElementsAre(2, 3, 4, 5, 6, 7, 8, 16, 32));
  EXPECT_THAT(NumbersFor(Request(61, 4)), ElementsAre(2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(NumbersFor(Request(200, 2)), ElementsAre(2, 3, 4, 5, 6, 7, 8, 10, 20, 25, 50)) << "at most 64";
  EXPECT_THAT(NumbersFor(Request(12, 4)), ElementsAre(2, 3));
  PlanRequest pinned = Request(96, 8);
  pinned.spec.parallel.virtual_stages = 10;
  EXPECT_THAT(NumbersFor(pinned), ElementsAre(10)) << "a job may ask for any number";
}

// With as many microbatches as stages, the pipeline waits least with the smallest chunks.
TEST(VirtualStages, TheSearchTakesMoreThanEightIfTheStepIsShorter) {
  PlanRequest request = Request(24, 2);
  const Plan open = std::get<Plan>(*MakePlan(request));
  EXPECT_EQ(open.layout.virtual_stages, 12);
  EXPECT_EQ(CheckPlan(open), absl::OkStatus());
  for (const int32_t fewer : {4, 6, 8}) {
    request.spec.parallel.virtual_stages = fewer;
    EXPECT_LT(open.step, std::get<Plan>(*MakePlan(request)).step) << fewer;
  }
}

}  // namespace
}  // namespace lynx
