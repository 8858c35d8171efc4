// Lets jobs train on a fixture's cluster: steps, plans with a step time, ranks that give way. Test support.
#ifndef LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_STEPS_H_
#define LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_STEPS_H_

#include <memory>
#include <string>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server::testing {

inline const ParallelLayout kOne{1, 1, 1};
inline const ParallelLayout kTwo{1, 2, 1};
inline const ParallelLayout kFour{2, 2, 1};
inline constexpr int kExitYielded = 5;

inline std::shared_ptr<const Plan> PlanOf(const JobSpec& spec, const ParallelLayout& layout, int64_t step_millis) {
  Plan plan = *MakeTestPlan(spec, layout);
  plan.step = Nanos(step_millis * 1'000'000);
  plan.digest = std::string(64, static_cast<char>('a' + layout.ranks()));
  return std::make_shared<const Plan>(plan);
}

// Answers all waiting requests for plans with this layout and step time.
inline void Answer(Cluster& cluster, const ParallelLayout& layout, int64_t step_millis) {
  ASSERT_FALSE(cluster.plans().empty());
  cluster.AnswerPlansWith(PlanOf(cluster.plans().front().request.spec, layout, step_millis));
}

inline JobSpec Elastic(int32_t min_ranks, int32_t max_ranks, int64_t steps = 10'000) {
  JobSpec spec = MakeSpec("gpt", min_ranks, max_ranks);
  spec.train.steps = steps;
  return spec;
}

inline JobId RunSteps(Cluster& cluster, const JobSpec& spec, const ParallelLayout& layout, int64_t steps,
                      int64_t step_millis = 100) {
  const JobId job = cluster.Submit(spec);
  cluster.MeasureAll();
  Answer(cluster, layout, step_millis);
  cluster.AllReady(job);
  for (int64_t step = 0; step < steps; ++step) cluster.StepAll(job, step);
  return job;
}

// Lets every rank of the job give way after `steps` steps.
inline void GiveWay(Cluster& cluster, const JobId& job, int64_t steps) {
  cluster.Say(job, 0, CheckpointReport{steps, "/c/step", Bytes(1)});
  cluster.SayAll(job, [&](int32_t) { return RankMessage{.report = RankYielded{steps}}; });
  const int32_t ranks = cluster.Ranks(job);
  for (int32_t r = 0; r < ranks; ++r) cluster.Exit(job, r, kExitYielded);
}

}  // namespace lynx::server::testing

#endif  // LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_STEPS_H_
