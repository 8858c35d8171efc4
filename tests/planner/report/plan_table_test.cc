#include "planner/report/plan_table.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plan PlanWithLimit(Bytes limit) {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = limit};
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .weave = WeaveMode::kOff};
  HardwareProfile profile = StatedCpuProfile();
  profile.intra_node = {Nanos(50'000), 100'000'000};
  request.cluster = UniformCluster(2, 2, profile);
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result));
  return std::get<Plan>(*result);
}

TEST(PlanTable, Golden) {
  const std::string table = PlanTable(PlanWithLimit(kKiB * 1000));
  const std::string path = std::string(LYNX_SOURCE_DIR) + "/tests/planner/golden/plan_table.txt";
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << table;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(table, golden.str());
}

TEST(PlanTable, SaysWhenNothingIsRecomputedAndNothingIsLimited) {
  const std::string table = PlanTable(PlanWithLimit(Bytes(0)));
  EXPECT_THAT(table, HasSubstr("nothing recomputed"));
  EXPECT_THAT(table, HasSubstr("  none  "));
  EXPECT_THAT(table, Not(HasSubstr(" \n")));
}

TEST(PlanTable, NeedsNoPrograms) {
  Plan plan = PlanWithLimit(kKiB * 1000);
  const std::string table = PlanTable(plan);
  for (StagePlan& stage : plan.stages) stage.program.clear();
  EXPECT_EQ(PlanTable(plan), table);
}

}  // namespace
}  // namespace lynx
