// Makes stores, jobs and plans for tests.
#ifndef LYNX_TESTS_SERVER_STORE_STORED_JOBS_H_
#define LYNX_TESTS_SERVER_STORE_STORED_JOBS_H_

#include <memory>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "server/store/store_address.h"

namespace lynx::server {

inline absl::StatusOr<std::unique_ptr<Store>> OpenStoreFile(const std::string& path) { return OpenStore("sqlite:" + path, ""); }

inline JobSpec MakeSpec(const std::string& name) {
  JobSpec spec;
  spec.name = name;
  spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  spec.data.path = "/data/text";
  spec.train.steps = 10;
  spec.train.global_batch = 4;
  spec.resources.max_ranks = 2;
  Normalize(spec);
  return spec;
}

inline JobRecord MakeJob(int64_t number) {
  JobRecord job;
  job.id = JobId("job" + std::to_string(number));
  job.submission = number;
  job.idempotency_key = "key" + std::to_string(number);
  const JobSpec spec = MakeSpec("name" + std::to_string(number));
  job.spec = std::make_shared<const JobSpec>(spec);
  job.spec_digest = SpecDigest(spec);
  job.submitted = Nanos(1000 + number);
  job.reason = "waits";
  return job;
}

inline std::shared_ptr<const Plan> MakeSmallPlan(const JobSpec& spec) {
  PlanRequest request{.spec = spec, .cluster = UniformCluster(1, 2, StatedCpuProfile())};
  absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::make_shared<const Plan>(std::get<Plan>(*result));
}

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_STORE_STORED_JOBS_H_
