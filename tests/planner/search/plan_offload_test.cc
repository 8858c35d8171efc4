// Tests whole plans in which the planner chooses what to offload to the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/candidates/stage_peaks.h"
#include "planner/candidates/supported.h"
#include "planner/report/plan_table.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"
#include "planner/stages/layout_planner.h"
#include "planner/stages/stage_oracle.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// Returns a request without collectives that could hide recomputation. The link to the host is fast: copying the activations of
// a layer takes a small part of the time of the layer's passes.
PlanRequest Request(int64_t kib) {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.model = {.layers = 16, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 1, .pp = 4, .dp = 1, .virtual_stages = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = kKiB * kib};
  request.cluster = UniformCluster(1, 4, SmallGpu());
  NodeGroup& group = request.cluster.groups[0];
  group.host_memory = kMiB * 64;
  group.profile.host = {Nanos(1'000), 20'000'000'000, 20'000'000'000, 40'000'000'000, 1010};
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
  return std::get<Plan>(*result);
}

bool Offloads(const Plan& plan) {
  bool any = false;
  for (const StagePlan& stage : plan.stages) {
    for (const SlicePlan& slice : stage.slices) any = any || lynx::Offloads(slice.policy);
  }
  return any;
}

TEST(PlanOffload, IsChosenWhereRecomputingIsLongAndCopiesAreFast) {
  for (const RecomputeMode mode : {RecomputeMode::kAuto, RecomputeMode::kHeu}) {
    for (const int64_t kib : {4000, 5000, 6500}) {
      SCOPED_TRACE(testing::Message() << EnumName(mode) << ", " << kib << " KiB");
      PlanRequest request = Request(kib);
      request.spec.recompute = mode;
      const Plan plan = PlanOf(request);
      EXPECT_TRUE(Offloads(plan));
      EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
      for (const StagePlan& stage : plan.stages) {
        EXPECT_LE(stage.arena, kKiB * kib);
        EXPECT_LE(stage.host, kMiB * 16);
      }
      EXPECT_GT(plan.stages[0].host, Bytes(0));
      request.spec.recompute_options.forbids_offload = true;
      const Plan without = PlanOf(request);
      EXPECT_FALSE(Offloads(without));
      EXPECT_LT(plan.step, without.step);
      const std::string table = PlanTable(plan);
      EXPECT_THAT(table, HasSubstr("offloaded"));
      EXPECT_THAT(table, Not(HasSubstr("offload:")));
      EXPECT_THAT(PlanTable(without), Not(HasSubstr("offload")));
    }
  }
}

TEST(PlanOffload, NothingLeavesOverASlowLinkOrForUnknownHosts) {
  PlanRequest request = Request(5000);
  request.spec.recompute_options.forbids_offload = true;
  const std::string without = PlanOf(request).digest;
  request = Request(5000);
  request.cluster.groups[0].profile.host = {Nanos(1'000'000), 1'000'000, 1'000'000, 2'000'000, 1010};
  EXPECT_EQ(PlanOf(request).digest, without);
  request = Request(5000);
  request.cluster.groups[0].host_memory = Bytes(0);
  EXPECT_EQ(PlanOf(request).digest, without);
  request = Request(5000);
  request.spec.recompute = RecomputeMode::kNoOverlap;
  EXPECT_FALSE(Offloads(PlanOf(request)));
}

TEST(PlanOffload, IsTheEnginesToChooseToo) {
  PlanRequest request = Request(5000);
  request.target = PlanTarget::kLynxEngine;
  EXPECT_TRUE(Offloads(PlanOf(request)));
}

// On CPU ranks, tensors on the host may use only the device memory that states and activations leave.
TEST(PlanOffload, AHostThatIsTheDevicePromisesNoByteTwice) {
  PlanRequest request = Request(5000);
  request.target = PlanTarget::kLynxEngine;
  NodeGroup& group = request.cluster.groups[0];
  group.host_is_device = true;  // this makes the planner ignore the 64 MiB of Request
  group.memory_per_device = kGiB;
  const Plan roomy = PlanOf(request);
  ASSERT_TRUE(Offloads(roomy));
  Bytes most;
  for (const StagePlan& stage : roomy.stages) most = std::max(most, stage.states.total() + stage.arena + stage.host);
  int offloading = 0;
  for (int64_t kib = 0; kib <= 4096; kib += 256) {
    SCOPED_TRACE(testing::Message() << kib << " KiB less");
    group.memory_per_device = most - kKiB * kib;
    const Plan plan = PlanOf(request);
    for (const StagePlan& stage : plan.stages) {
      EXPECT_LE(stage.states.total() + stage.arena + stage.host, group.memory_per_device);
    }
    request.spec.recompute_options.forbids_offload = true;
    EXPECT_LE(plan.step, PlanOf(request).step);
    request.spec.recompute_options.forbids_offload = false;
    offloading += Offloads(plan) ? 1 : 0;
  }
  EXPECT_GE(offloading, 2);
  // If the job sets no limit, activations may use all the memory of the device.
  request.spec.resources.activation_memory_per_rank = Bytes(0);
  EXPECT_FALSE(Offloads(PlanOf(request)));
  // If the memory is unknown, the planner offloads nothing.
  request = Request(5000);
  request.cluster.groups[0].host_is_device = true;
  EXPECT_FALSE(Offloads(PlanOf(request)));
}

TEST(PlanOffload, HoldsUnderEverySchedule) {
  using enum ScheduleKind;
  std::vector<std::string> offloading;
  for (const ScheduleKind schedule : {kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubble, kZeroBubbleV, kChimera}) {
    for (const int64_t host : {64, 4096, 65536}) {
      SCOPED_TRACE(testing::Message() << EnumName(schedule) << ", host " << host << " KiB");
      const int64_t kib = InfoOf(schedule).splits_weight ? 8000 : 5000;
      PlanRequest request = Request(kib);
      request.spec.parallel.schedule = schedule;
      request.spec.parallel.virtual_stages = schedule == kInterleaved ? 2 : 1;
      request.cluster.groups[0].host_memory = kKiB * host;
      const Plan plan = PlanOf(request);
      EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
      for (const StagePlan& stage : plan.stages) {
        EXPECT_LE(stage.host, kKiB * host / 4);
        EXPECT_LE(stage.arena, kKiB * kib);
      }
      if (Offloads(plan)) offloading.push_back(absl::StrCat(EnumName(schedule), " ", host));
    }
  }
  // With 64 KiB in the host, a device's share of the host is smaller than any tensor of the microbatches in flight.
  EXPECT_THAT(offloading, Each(Not(EndsWith(" 64"))));
  EXPECT_THAT(offloading, IsSupersetOf({"gpipe 65536", "1f1b 4096", "1f1b 65536", "interleaved 65536", "zero-bubble 65536",
                                        "zero-bubble-v 4096", "zero-bubble-v 65536", "chimera 65536"}));
}

std::vector<StagePolicy> PoliciesOf(StageOracle& fits) {
  const std::optional<StageOracle::Fit>& fit = fits.FitOf(RecomputeMode::kAuto, 0, 4);
  EXPECT_TRUE(fit.has_value());
  return fit->policies;
}

Bytes BytesThatLeave(const StageOracle& fits, const std::vector<StagePolicy>& policies) {
  Bytes leaving;
  for (const LayerPolicy& layer : policies.front().layers) {
    for (size_t i = 0; i < fits.graph().recomputable().size(); ++i) {
      if (layer[i] == Placement::kOffload) leaving += StoredBytes(fits.graph().recomputable()[i], fits.shape());
    }
  }
  return leaving;
}

// If a program takes more of the host's memory than HEU expected, the planner reduces the share with which HEU plans. Here it
// takes twice the share, so at most half as many bytes leave afterwards.
TEST(PlanOffload, LessLeavesWhereAProgramTookMoreOfTheHostThanItsShare) {
  const PlanRequest request = Request(5000);
  const Candidate candidate = SupportedCandidates(request)->front();
  PlanCaches caches(request);
  StageOracle fits(request, candidate, caches);
  fits.SetOffloading(true);
  const std::vector<StagePolicy> before = PoliciesOf(fits);
  ASSERT_GT(BytesThatLeave(fits, before), Bytes(0));
  const Bytes share = fits.HostShare(0, 4, Bytes(0));
  fits.ReserveHost(0, before, share * 2, share);
  const std::vector<StagePolicy> after = PoliciesOf(fits);
  EXPECT_GT(BytesThatLeave(fits, after), Bytes(0));
  EXPECT_LE(BytesThatLeave(fits, after), BytesThatLeave(fits, before) / 2);
}

// A stage does not offload if it is fast enough without offloading. Measurements of one stage do not change the fits of other
// stages.
TEST(PlanOffload, OnlySlowStagesOffload) {
  const PlanRequest request = Request(5000);
  const Candidate candidate = SupportedCandidates(request)->front();
  PlanCaches caches(request);
  StageOracle fits(request, candidate, caches);
  const Nanos stored = fits.BusyTime(0, 4) + fits.FitOf(RecomputeMode::kAuto, 0, 4)->exposed;
  fits.SetOffloading(true);
  const StageOracle::Fit offloading = *fits.FitOf(RecomputeMode::kAuto, 0, 4);
  EXPECT_LT(fits.BusyTime(0, 4) + offloading.exposed, stored);
  EXPECT_GT(BytesThatLeave(fits, offloading.policies), Bytes(0));
  fits.OffloadAbove(stored);
  EXPECT_EQ(BytesThatLeave(fits, PoliciesOf(fits)), Bytes(0));
  fits.OffloadAbove(stored - Nanos(1));
  EXPECT_EQ(PoliciesOf(fits), offloading.policies);
  const Nanos of_second = fits.FitOf(RecomputeMode::kAuto, 1, 4)->exposed;
  fits.Reserve(0, Bytes(kKiB * 1000));
  EXPECT_GT(fits.FitOf(RecomputeMode::kAuto, 0, 4)->exposed, offloading.exposed);
  EXPECT_EQ(fits.FitOf(RecomputeMode::kAuto, 1, 4)->exposed, of_second);
}

// A draft that was made for hosts with more memory is not yet a plan. The planner plans it again within the smaller share.
TEST(PlanOffload, DraftsThatTakeMoreOfTheHostThanItsShareArePlannedAgain) {
  const PlanRequest roomy = Request(5000);
  const Candidate candidate = SupportedCandidates(roomy)->front();
  PlanCaches roomy_caches(roomy);
  constexpr Nanos kForever{std::numeric_limits<int64_t>::max()};
  const std::optional<Draft> draft = LayoutPlanner(roomy, candidate, roomy_caches).Best(kForever);
  ASSERT_TRUE(draft && draft->offloading);
  PlanRequest tight = roomy;
  tight.cluster.groups[0].host_memory = kMiB;
  PlanCaches caches(tight);
  LayoutPlanner planner(tight, candidate, caches);
  EXPECT_FALSE(planner.Assemble(*draft).has_value());
  std::optional<Draft> again = planner.ReplanSamePartition(draft->mode, draft->offloading, draft->layers);
  ASSERT_TRUE(again.has_value());
  const std::optional<Plan> plan = planner.Assemble(*std::move(again));
  ASSERT_TRUE(plan.has_value());
  for (const StagePlan& stage : plan->stages) EXPECT_LE(stage.host, kMiB / 4);
}

// With a limit of 1 KiB there is no plan, and the result says how large the smallest arena is. Offloading makes this arena no
// larger. The reason mentions the host's memory only if offloading is allowed.
TEST(PlanOffload, SaysWhatIsMissingWithTheHostsMemory) {
  PlanRequest request = Request(1);
  request.spec.recompute_options.forbids_offload = true;
  const Infeasible without = std::get<Infeasible>(*MakePlan(request));
  request.spec.recompute_options.forbids_offload = false;
  const Infeasible with = std::get<Infeasible>(*MakePlan(request));
  EXPECT_LE(with.needed, without.needed);
  EXPECT_THAT(with.reason, HasSubstr("with everything recomputed or in the host's memory"));
  EXPECT_THAT(without.reason, Not(HasSubstr("host")));
}

}  // namespace
}  // namespace lynx
