#include "planner/cost/core_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/simulate.h"
#include "planner/cost/stage_costs.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// There are two stages of one rank each. A boundary transfer takes 640 ns, and the ops of a segment take 500 ns forward.
class SharedCoresTest : public ::testing::Test {
 protected:
  Simulation Run(const std::string& first, const std::string& second, const std::vector<SharedCores>& shared) {
    ClusterTopology cluster = UniformCluster(1, layout_.ranks(), profile_);
    cluster.shared_cores = shared;
    const StageCosts costs(cluster, model_, layout_, 1);
    const absl::StatusOr<Simulation> simulation = Simulate(
        {Parse(first), Parse(second)}, {TinyContext(model_, layout_, 2, 0), TinyContext(model_, layout_, 2, 1)}, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status();
    return simulation.ok() ? *simulation : Simulation{};
  }

  const ModelSpec model_ = TinyModel(4);
  HardwareProfile profile_ = RoundProfile(model_);
  ParallelLayout layout_{.pp = 2};
  const std::vector<SharedCores> one_core_{{.devices = {0, 1}, .at_once_permille = 1000}};
};

TEST_F(SharedCoresTest, TwoRanksThatAlwaysComputeTakeTwiceAsLongOnOneCore) {
  const std::string first = "0F0:0.attn 0F0:0.mlp", second = "1F0:2.attn 1F0:2.mlp";
  EXPECT_EQ(Run(first, second, {}).step, Nanos(1000));
  const Simulation shared = Run(first, second, one_core_);
  EXPECT_EQ(shared.step, Nanos(2000));
  for (const StageTimes& stage : shared.stages) {
    EXPECT_EQ(stage.forward, Nanos(2000));
    EXPECT_EQ(stage.core_wait, Nanos(1000));
    EXPECT_EQ(stage.end, Nanos(2000));
    EXPECT_EQ(stage.spans[0].end, Nanos(1000));
    EXPECT_EQ(stage.spans[1].begin, Nanos(1000));
  }
}

TEST_F(SharedCoresTest, RanksThatAlternateLoseNothing) {
  const std::string first = "0F0:0.attn 0SF+0 0SF-0 0RB+0 0RB-0 0B0:0.attn",
                    second = "1RF+0 1RF-0 1F0:2.attn 1B0:2.attn 1SB+0 1SB-0";
  const Simulation alone = Run(first, second, {}), shared = Run(first, second, one_core_);
  EXPECT_EQ(shared.step, alone.step);
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(shared.stages[stage].core_wait, Nanos(0));
    EXPECT_EQ(shared.stages[stage].end, alone.stages[stage].end);
    EXPECT_EQ(shared.stages[stage].stall, alone.stages[stage].stall);
  }
}

TEST_F(SharedCoresTest, RanksSlowEachOtherOnlyWhileBothCompute) {
  const Simulation shared = Run("0F0:0.attn 0SF+0 0F0:0.mlp 0SF-0", "1RF+0 1RF-0 1F0:2.attn 1F0:2.mlp", one_core_);
  // The first rank's work ends at 1000 ns. The transfer for which the second rank waits ends at 1140 ns.
  EXPECT_EQ(shared.stages[0].core_wait, Nanos(0));
  EXPECT_EQ(shared.step, Nanos(1140 + 1000));
  const Simulation longer = Run("0F0:0.attn 0SF+0 0F0:0.attn 0F0:0.mlp 0SF-0", "1RF+0 1RF-0 1F0:2.attn 1F0:2.mlp", one_core_);
  // At 1140 ns the first rank has 360 ns of work left. This takes 720 ns, because the second rank does as much work
  // meanwhile. After that, 640 ns of the second rank's work remain.
  EXPECT_EQ(longer.stages[0].core_wait, Nanos(360));
  EXPECT_EQ(longer.stages[0].spans[3].end, Nanos(1140 + 720));
  EXPECT_EQ(longer.step, Nanos(1140 + 720 + 640));
  EXPECT_EQ(longer.stages[1].core_wait, Nanos(360));
}

TEST_F(SharedCoresTest, RanksOfAStageThatShareACoreMakeItsTimesLonger) {
  layout_ = {.tp = 2, .pp = 2};
  const std::vector<SharedCores> a_core_each{{.devices = {0, 1}, .at_once_permille = 1000},
                                             {.devices = {2, 3}, .at_once_permille = 1000}};
  const std::string first = "0F0:0.attn 0F0:0.mlp", second = "1F0:2.attn";
  const Simulation shared = Run(first, second, a_core_each);
  EXPECT_EQ(shared.stages[0].end, Nanos(2000));
  EXPECT_EQ(shared.stages[0].core_wait, Nanos(1000));
  EXPECT_EQ(shared.stages[1].end, Nanos(1000)) << "the stages are on cores of their own";
  // Four ranks share one core. While both stages compute, work takes 4 times as long. The second stage is done at 2000 ns. At
  // that time the first stage has done half of its work.
  const Simulation all = Run(first, second, {{.devices = {0, 1, 2, 3}, .at_once_permille = 1000}});
  EXPECT_EQ(all.stages[1].end, Nanos(2000));
  EXPECT_EQ(all.stages[0].end, Nanos(3000));
  EXPECT_EQ(all.stages[0].core_wait, Nanos(2000));
}

TEST_F(SharedCoresTest, AWindowHidesLessWhereRanksShareACore) {
  layout_ = {.tp = 2, .pp = 2};
  const std::vector<SharedCores> first_stage{{.devices = {0, 1}, .at_once_permille = 1000}};
  // The 400 ns of recomputation take 800 ns, in a window of 640 ns.
  const std::string program = "0AR+0:0.attn 0R0:0.attn(ln1,qkv,probs,context) 0AR-0:0.attn";
  EXPECT_EQ(Run(program, "", {}).stages[0].recompute_exposed, Nanos(0));
  EXPECT_EQ(Run(program, "", first_stage).stages[0].recompute_exposed, Nanos(160));
  // The transfers of the two ranks take a tenth of a core each, which is a fifth in all. So 512 of 640 ns are left.
  profile_.communication_compute_permille = 100;
  EXPECT_EQ(Run(program, "", first_stage).stages[0].end, Nanos(640 + 800 - 512));
}

TEST_F(SharedCoresTest, ALimitOfTimeSlowsEvenOneRank) {
  EXPECT_EQ(Run("0F0:0.attn", "", {{.devices = {0}, .at_once_permille = 250}}).step, Nanos(2000));
}

TEST_F(SharedCoresTest, EnoughCoresChangeNothing) {
  // Four ranks share three cores; the job has two of these ranks.
  const std::vector<SharedCores> shared{{.devices = {0, 1, 2, 3}, .at_once_permille = 3000}};
  const Simulation simulation = Run("0F0:0.attn", "1F0:2.attn", shared);
  EXPECT_EQ(simulation.step, Nanos(500));
  EXPECT_EQ(simulation.stages[0].core_wait, Nanos(0));
  ClusterTopology cluster = UniformCluster(2, 2, profile_);
  cluster.shared_cores = shared;
  EXPECT_FALSE(CoreSharing(cluster, layout_).BetweenStages());
  EXPECT_TRUE(CoreSharing(cluster, {.tp = 2, .pp = 2}).BetweenStages());
}

TEST(CoreSharing, ACheckedClusterNamesItsSharedCoresWell) {
  ClusterTopology cluster = UniformCluster(2, 2, StatedCpuProfile());
  const auto error = [&](SharedCores shared) {
    cluster.shared_cores = {std::move(shared)};
    return std::string(CheckCluster(cluster).message());
  };
  EXPECT_EQ(error({{0, 1}, 1999}), "");
  EXPECT_THAT(error({{}, 1}), HasSubstr("shared cores of the cluster name no device"));
  EXPECT_THAT(error({{-1, 1}, 1}), HasSubstr("one below 0"));
  EXPECT_THAT(error({{1, 1}, 1}), HasSubstr("in order, each once"));
  EXPECT_THAT(error({{1, 0}, 1}), HasSubstr("in order, each once"));
  EXPECT_THAT(error({{0, 1}, 0}), HasSubstr("carry 0 thousandths of a rank at full speed"));
  EXPECT_THAT(error({{0, 1}, 2000}), HasSubstr("less than their 2 devices"));
}

// Makes a whole plan that is similar to the demo's plan: four ranks on two nodes, all on one machine with two cores.
TEST(CoreSharing, APlanCountsOnTheCores) {
  PlanRequest request;
  request.spec.model = {.layers = 4, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 4;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1};
  request.cluster = UniformCluster(2, 2, StatedCpuProfile());
  const auto plan = [&] { return std::get<Plan>(*MakePlan(request)); };
  const Plan alone = plan();
  request.cluster.shared_cores = {{.devices = {0, 1}, .at_once_permille = 1000}, {.devices = {2, 3}, .at_once_permille = 1000}};
  const Plan shared = plan();
  EXPECT_EQ(PlanText(shared), PlanText(plan())) << "the same request gives the same plan";
  EXPECT_GT(shared.step, alone.step);
  EXPECT_TRUE(CheckPlan(shared).ok()) << CheckPlan(shared);
  for (const StagePlan& stage : alone.stages) EXPECT_EQ(stage.core_wait, Nanos(0));
  for (const StagePlan& stage : shared.stages) EXPECT_GT(stage.core_wait, Nanos(0));
  EXPECT_THAT(PlanText(shared), HasSubstr(" core_wait "));
  EXPECT_EQ(PlanText(alone).find("core_wait"), std::string::npos);
}

}  // namespace
}  // namespace lynx
