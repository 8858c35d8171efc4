// Makes a small plan for the tests of pages and reports. The plan has two stages, windows with recomputation in them, and
// stalls.
#ifndef LYNX_TESTS_PLANNER_REPORT_REPORT_FIXTURES_H_
#define LYNX_TESTS_PLANNER_REPORT_REPORT_FIXTURES_H_

#include <gtest/gtest.h>

#include <memory>

#include "planner/plan/plan.h"
#include "planner/report/timeline.h"
#include "planner/search/make_plan.h"

namespace lynx {

// `step` points to `request` and `plan`, so the fixture must not move.
struct ReportFixture {
  PlanRequest request;
  Plan plan;
  PredictedStep step;
};

inline PlanRequest SmallRequest(Bytes activation_limit, int32_t global_batch = 16) {
  PlanRequest request;
  request.spec.name = "small";
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = global_batch;
  request.spec.train.micro_batch = 1;
  request.spec.train.steps = 10;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = activation_limit};
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .weave = WeaveMode::kOff};
  HardwareProfile profile = StatedCpuProfile();
  profile.device_kind = "<test> & device";
  profile.intra_node = {Nanos(50'000), 100'000'000};
  request.cluster = UniformCluster(2, 2, profile);
  return request;
}

inline std::unique_ptr<ReportFixture> PlannedStep(PlanRequest request) {
  auto fixture = std::make_unique<ReportFixture>();
  fixture->request = std::move(request);
  const absl::StatusOr<PlanResult> result = MakePlan(fixture->request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
  fixture->plan = std::get<Plan>(*result);
  absl::StatusOr<PredictedStep> step = PredictStep(fixture->request, fixture->plan);
  EXPECT_TRUE(step.ok()) << step.status();
  fixture->step = *std::move(step);
  return fixture;
}

inline std::unique_ptr<ReportFixture> SmallStep(Bytes activation_limit = kKiB * 1000, int32_t global_batch = 16) {
  return PlannedStep(SmallRequest(activation_limit, global_batch));
}

// Returns a planned step in which several passes run side by side, as `weave` says.
inline std::unique_ptr<ReportFixture> WovenStep(WeaveMode weave) {
  PlanRequest request = SmallRequest(kKiB * 4000);
  request.spec.parallel.weave = weave;
  return PlannedStep(std::move(request));
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_REPORT_REPORT_FIXTURES_H_
