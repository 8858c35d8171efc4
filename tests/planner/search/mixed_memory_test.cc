// Tests plans for mixed clusters whose nodes differ in memory: every stage uses the memory of the nodes that it runs on.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/export/export.h"
#include "planner/search/arrangement.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

// A cluster of equally fast nodes, one device each; the groups have these amounts of memory.
ClusterTopology Nodes(const std::vector<Bytes>& memory, int32_t nodes_of_each = 1) {
  ClusterTopology cluster;
  for (const Bytes of_device : memory) {
    cluster.groups.push_back(UniformCluster(nodes_of_each, 1, SmallGpu(), of_device).groups.front());
    cluster.groups.back().name = "memory " + std::to_string(of_device.value);
  }
  return cluster;
}

PlanRequest RequestOn(ClusterTopology cluster, int32_t layers = 8) {
  PlanRequest request;
  request.spec.name = "job";
  request.spec.data.path = "corpus";
  request.spec.model = {.layers = layers, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 16;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = cluster.devices();
  request.cluster = std::move(cluster);
  Normalize(request.spec);
  return request;
}

// The plan in one layout of this number of stages; nullopt: nothing fits.
std::optional<Plan> InStages(PlanRequest request, int32_t stages, std::vector<int32_t> layers = {}) {
  request.spec.parallel = {.tp = 1,
                           .pp = stages,
                           .dp = request.cluster.devices() / stages,
                           .virtual_stages = 1,
                           .schedule = ScheduleKind::kOneForwardOneBackward,
                           .zero = ZeroStage::kNone,
                           .rank_order = RankOrder::kTpPpDp,
                           .stage_layers = std::move(layers)};
  request.spec.train.micro_batch = 1;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  const Plan* plan = result.ok() ? std::get_if<Plan>(&*result) : nullptr;
  return plan == nullptr ? std::nullopt : std::optional(*plan);
}

Bytes TakenBy(const StagePlan& stage) { return stage.states.total() + stage.arena; }

// No rank of the plan takes more than its device has.
void ExpectInMemory(const Plan& plan, const ClusterTopology& cluster) {
  for (int32_t rank = 0; rank < plan.layout.ranks(); ++rank) {
    const Bytes memory = cluster.groups[static_cast<size_t>(cluster.GroupOfRank(rank))].memory_per_device;
    const int32_t stage = CoordinatesOf(plan.layout, rank).stage;
    if (memory.value > 0) EXPECT_LE(TakenBy(plan.stages[static_cast<size_t>(stage)]), memory) << "rank " << rank;
  }
}

// The memory that both stages would like.
Bytes Wanted() {
  const Plan plan = *InStages(RequestOn(Nodes({Bytes(0), Bytes(0)})), 2);
  return std::min(TakenBy(plan.stages[0]), TakenBy(plan.stages[1]));
}

TEST(MixedMemory, AStageUsesTheMemoryOfItsNodes) {
  const Bytes small = Wanted() * 6 / 10, large = Wanted() * 4;
  for (const bool first : {false, true}) {
    const ClusterTopology cluster = first ? Nodes({large, small}) : Nodes({small, large});
    const std::optional<Plan> mixed = InStages(RequestOn(cluster), 2);
    ASSERT_TRUE(mixed.has_value());
    ExpectInMemory(*mixed, cluster);
    EXPECT_GT(TakenBy(mixed->stages[first ? 0 : 1]), small) << "the larger memory is used";
    const std::optional<Plan> uniform = InStages(RequestOn(Nodes({small, small})), 2);
    EXPECT_TRUE(!uniform || mixed->step < uniform->step) << "it is faster than with the smallest memory for all";
  }
}

TEST(MixedMemory, AJobMayFitOnlyWithTheLargerMemory) {
  const Plan full = *InStages(RequestOn(Nodes({Bytes(0), Bytes(0)})), 2);
  const Bytes states = std::max(full.stages[0].states.total(), full.stages[1].states.total());
  EXPECT_FALSE(InStages(RequestOn(Nodes({states * 8 / 10, states * 8 / 10})), 2).has_value());
  const ClusterTopology cluster = Nodes({states * 8 / 10, states * 4});
  const std::optional<Plan> mixed = InStages(RequestOn(cluster), 2);
  ASSERT_TRUE(mixed.has_value());
  ExpectInMemory(*mixed, cluster);
  EXPECT_LT(mixed->stages[0].slices[0].layers(), mixed->stages[1].slices[0].layers());
}

// If the replicas of a stage run on both kinds of nodes, the smaller memory counts for the stage. Another order of the nodes
// gives each stage nodes of one kind.
TEST(MixedMemory, TheOrderOfTheNodesGivesAStageOneKind) {
  const Bytes small = Wanted() * 6 / 10, large = Wanted() * 4;
  PlanRequest request = RequestOn(Nodes({small, large}, 2));
  request.spec.parallel.rank_order = RankOrder::kTpPpDp;
  request.spec.parallel.pp = 2;
  const std::optional<Plan> given = InStages(request, 2);
  request.cluster = FastestArrangement(request);
  const std::optional<Plan> arranged = InStages(request, 2);
  ASSERT_TRUE(arranged.has_value());
  EXPECT_TRUE(!given || arranged->step < given->step);
  EXPECT_EQ(request.cluster.groups.size(), 4);
  ExpectInMemory(*arranged, request.cluster);
}

// Every split of `layers` over `stages`.
std::vector<std::vector<int32_t>> Splits(int32_t layers, int32_t stages) {
  if (stages == 1) return {{layers}};
  std::vector<std::vector<int32_t>> splits;
  for (int32_t first = 1; first + stages - 1 <= layers; ++first) {
    for (std::vector<int32_t> rest : Splits(layers - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      splits.push_back(std::move(rest));
    }
  }
  return splits;
}

// The plan is compared with the fastest plan of all splits of the layers.
TEST(MixedMemory, ThePlanIsTheFastestOfAllSplits) {
  int planned = 0, mixed = 0;
  double worst = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    const int32_t stages = Draw(rng, 2, 3);
    std::vector<Bytes> memory;
    for (int32_t stage = 0; stage < stages; ++stage) memory.push_back(kKiB * Draw(rng, 5'000, 25'000));
    const ClusterTopology cluster = Nodes(memory);
    const PlanRequest request = RequestOn(cluster, Draw(rng, 4, 6));
    const std::optional<Plan> plan = InStages(request, stages);
    std::optional<Nanos> best;
    for (const std::vector<int32_t>& split : Splits(request.spec.model.layers, stages)) {
      const std::optional<Plan> of_split = InStages(request, stages, split);
      if (!of_split) continue;
      ExpectInMemory(*of_split, cluster);
      if (!best || of_split->step < *best) best = of_split->step;
    }
    ASSERT_EQ(plan.has_value(), best.has_value());
    if (!plan) continue;
    ++planned;
    ExpectInMemory(*plan, cluster);
    const Bytes least = *std::min_element(memory.begin(), memory.end());
    for (const StagePlan& stage : plan->stages) mixed += TakenBy(stage) > least;
    worst = std::max(worst, 100 * (Seconds(plan->step) / Seconds(*best) - 1));
  }
  std::printf("%d plans, %d stages above the least memory, at most %.2f%% slower than the best split\n", planned, mixed, worst);
  EXPECT_GE(planned, 6);
  EXPECT_GE(mixed, 6);
  EXPECT_LE(worst, 1);
}

// Lines of the exported file without its comments.
std::string Exported(const PlanRequest& request, const Plan& plan) {
  const absl::StatusOr<ExportedPlan> exported = ExportPlan(NewestTarget(ExportFormat::kMegatron), request, plan);
  EXPECT_TRUE(exported.ok()) << exported.status();
  std::string lines;
  if (!exported.ok()) return lines;
  for (const absl::string_view line : absl::StrSplit(exported->files.front().text, '\n')) {
    if (!absl::StartsWith(line, "#")) absl::StrAppend(&lines, line, "\n");
  }
  return lines;
}

// An export says nothing of memory. So it is that of the same split on nodes that are alike.
TEST(MixedMemory, ExportsAreThoseOfTheSameSplit) {
  const Bytes small = Wanted() * 6 / 10, large = Wanted() * 4;
  PlanRequest request = RequestOn(Nodes({small, large}));
  request.spec.recompute = RecomputeMode::kFull;
  const std::optional<Plan> mixed = InStages(request, 2);
  ASSERT_TRUE(mixed.has_value());
  std::vector<int32_t> layers;
  for (const StagePlan& stage : mixed->stages) layers.push_back(stage.slices[0].layers());
  PlanRequest alike = request;
  alike.cluster = Nodes({large, large});
  const std::optional<Plan> uniform = InStages(alike, 2, layers);
  ASSERT_TRUE(uniform.has_value());
  EXPECT_EQ(Exported(request, *mixed), Exported(alike, *uniform));
}

}  // namespace
}  // namespace lynx
