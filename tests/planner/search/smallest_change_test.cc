// Compares every suggestion with brute force. Brute force tries all values of the field that the suggestion names, and all
// values of the fields that are tried before this field.
#include "planner/search/smallest_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/supported.h"
#include "planner/search/make_plan.h"
#include "planner/search/plan_search.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns true if MakePlan finds a plan. If there is none, this function does not compute the reasons.
bool Fits(const PlanRequest& request) {
  const absl::StatusOr<std::vector<Candidate>> candidates = SupportedCandidates(request);
  if (!candidates.ok()) return false;
  PlanCaches caches(request);
  return PlanSearch(request, *candidates, caches).Fastest().has_value();
}

Infeasible Refusal(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Infeasible>(*result)) << result.status();
  return result.ok() && std::holds_alternative<Infeasible>(*result) ? std::get<Infeasible>(*result) : Infeasible();
}

PlanRequest WithRanks(PlanRequest request, int32_t ranks) {
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = ranks;
  return request;
}

// Returns the first of `values` with which the request fits. nullopt: none fits.
std::optional<int64_t> FirstThatFits(const PlanRequest& request, const std::vector<int64_t>& values,
                                     const std::function<void(PlanRequest&, int64_t)>& set) {
  for (const int64_t value : values) {
    PlanRequest changed = request;
    set(changed, value);
    if (Fits(changed)) return value;
  }
  return std::nullopt;
}

std::vector<int64_t> Numbers(int64_t first, int64_t last, int64_t step = 1) {
  std::vector<int64_t> numbers;
  for (int64_t n = first; step > 0 ? n <= last : n >= last; n += step) numbers.push_back(n);
  return numbers;
}

void SetRanks(PlanRequest& request, int64_t ranks) { request = WithRanks(request, static_cast<int32_t>(ranks)); }
void SetMicroBatch(PlanRequest& request, int64_t size) { request.spec.train.micro_batch = static_cast<int32_t>(size); }
void SetSeq(PlanRequest& request, int64_t seq) { request.spec.model.seq = static_cast<int32_t>(seq); }
void SetLimit(PlanRequest& request, int64_t kib) { request.spec.resources.activation_memory_per_rank = kKiB * kib; }
void SetDevices(PlanRequest& request, int64_t kib) { request.cluster.groups[0].memory_per_device = kKiB * kib; }

// Returns a request for sixteen devices. Its model states take a little more than 12 MiB in all.
PlanRequest SmallRequest() {
  PlanRequest request;
  request.spec.model = {.layers = 4, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.model.attention = AttentionKernel::kFused;
  request.spec.train.global_batch = 16;
  request.cluster = UniformCluster(4, 4, SmallGpu());
  return WithRanks(request, 1);
}

// Returns a request for devices with `memory`, eight per node. The devices' times are not those of a real GPU, but memory does
// not depend on times.
PlanRequest LargeRequest(const ModelSpec& model, Bytes memory, int32_t ranks) {
  PlanRequest request;
  request.spec.model = model;
  request.spec.train.global_batch = 32;
  HardwareProfile profile = SmallGpu();
  profile.flops_per_second = 200'000'000'000'000;
  profile.memory_bytes_per_second = 1'500'000'000'000;
  request.cluster = UniformCluster(4, 8, profile, memory);
  return WithRanks(request, ranks);
}

ModelSpec Llama70() {
  return {.layers = 80,
          .hidden = 8192,
          .heads = 64,
          .ffn = 28672,
          .seq = 4096,
          .vocab = 32000,
          .dropout = 0,
          .family = ModelFamily::kLlama,
          .kv_heads = 8,
          .attention = AttentionKernel::kFused,
          .dtype = DataType::kBfloat16};
}

TEST(SmallestChange, LargeModelsTakeAsFewRanksAsFit) {
  ModelSpec llama13 = Llama70();
  llama13.layers = 40, llama13.hidden = 5120, llama13.heads = 40, llama13.ffn = 13824, llama13.kv_heads = 0;
  const PlanRequest on_four = LargeRequest(llama13, kGiB * 38, 4);
  EXPECT_EQ(Refusal(on_four).suggestion, "resources.ranks: 7");
  EXPECT_EQ(FirstThatFits(on_four, Numbers(5, 8), SetRanks), 7);
  const PlanRequest on_eight = LargeRequest(Llama70(), kGiB * 78, 8);
  EXPECT_EQ(Refusal(on_eight).suggestion, "resources.ranks: 16");
  EXPECT_EQ(FirstThatFits(on_eight, Numbers(14, 16), SetRanks), 16);
}

TEST(SmallestChange, RanksAreTheFewestOfTheCluster) {
  for (const int64_t kib : {1800, 2500, 4000, 6000}) {
    SCOPED_TRACE(kib);
    PlanRequest request = SmallRequest();
    SetDevices(request, kib);
    const std::optional<int64_t> fewest = FirstThatFits(request, Numbers(2, 16), SetRanks);
    ASSERT_TRUE(fewest.has_value());
    EXPECT_EQ(Refusal(request).suggestion, absl::StrCat("resources.ranks: ", *fewest));
  }
}

TEST(SmallestChange, WhatIsPinnedStays) {
  PlanRequest request = SmallRequest();
  SetDevices(request, 2500);
  request.spec.parallel.tp = 4;
  request = WithRanks(request, 4);
  const std::optional<int64_t> fewest = FirstThatFits(request, Numbers(5, 16), SetRanks);
  ASSERT_TRUE(fewest.has_value());
  EXPECT_EQ(Refusal(request).suggestion, absl::StrCat("resources.ranks: ", *fewest));
  // The suggestion must name the fields that have to change. The planner tries tp last, so here the suggestion does not name
  // tp.
  request.spec.parallel = {.tp = 4, .pp = 1, .dp = 1};
  const std::string suggestion = Refusal(request).suggestion;
  EXPECT_THAT(suggestion, HasSubstr("resources.ranks: "));
  EXPECT_THAT(suggestion, HasSubstr("parallel."));
  EXPECT_THAT(suggestion, Not(HasSubstr("parallel.tp")));
}

TEST(SmallestChange, OtherSizesOnTheSameRanksComeFirst) {
  PlanRequest request = SmallRequest();
  SetDevices(request, 6000);
  request = WithRanks(request, 4);
  request.spec.parallel = {.tp = 1, .pp = 1};
  ASSERT_FALSE(Fits(request));
  EXPECT_THAT(Refusal(request).suggestion, testing::StartsWith("parallel.pp: "));
}

TEST(SmallestChange, MicroBatchesAreTheLargestThatFit) {
  std::set<int64_t> sizes;
  for (const int64_t kib : {1200, 2500, 5000}) {
    SCOPED_TRACE(kib);
    PlanRequest request = SmallRequest();
    request.spec.train.micro_batch = 16;
    SetLimit(request, kib);
    const std::optional<int64_t> largest = FirstThatFits(request, {8, 4, 2, 1}, SetMicroBatch);
    ASSERT_TRUE(largest.has_value());
    EXPECT_EQ(Refusal(request).suggestion, absl::StrCat("train.microBatch: ", *largest));
    sizes.insert(*largest);
  }
  EXPECT_GT(sizes.size(), 1u);
}

constexpr int64_t kStep = 8;  // KiB

// Returns the smallest limit with which the request fits, in units of kStep.
int64_t LeastLimit(const PlanRequest& request) {
  const std::optional<int64_t> least = FirstThatFits(request, Numbers(kStep, 16'000, kStep), SetLimit);
  EXPECT_TRUE(least.has_value());
  return least.value_or(0);
}

TEST(SmallestChange, APolicyOfTheJobGivesWayBeforeItsMicroBatch) {
  PlanRequest request = SmallRequest();
  request.spec.train.micro_batch = 2;
  const int64_t least = LeastLimit(request);
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective}) {
    request.spec.recompute = mode;
    SetLimit(request, least);
    EXPECT_EQ(Refusal(request).suggestion, "recompute: auto");
    // If `recompute: auto` does not help, the suggestion is another change.
    SetLimit(request, least - kStep);
    EXPECT_THAT(Refusal(request).suggestion, Not(HasSubstr("recompute")));
  }
}

// The suggested job must be one that is planned, not one that is refused for what the other policy had.
TEST(SmallestChange, WhatAPolicyHadGivesWayWithIt) {
  PlanRequest request = SmallRequest();
  request.spec.name = "job";
  request.spec.data.path = "/data";
  request.spec.train.steps = 1;
  request.spec.train.micro_batch = 2;
  SetLimit(request, LeastLimit(request));
  request.spec.recompute = RecomputeMode::kSelective;
  request.spec.recompute_options.modules = {RecomputeModule::kMlp};
  EXPECT_EQ(Refusal(request).suggestion, "recompute: auto, recomputeOptions.modules: \"\"");
  request.spec.recompute = RecomputeMode::kAuto;
  EXPECT_THAT(std::string(ValidateJobSpec(request.spec).message()), HasSubstr("recomputeOptions.modules"));
  request.spec.recompute_options.modules.clear();
  EXPECT_EQ(ValidateJobSpec(request.spec), absl::OkStatus());
  EXPECT_TRUE(Fits(request));
}

TEST(SmallestChange, LimitsAreTheLeastThatFit) {
  PlanRequest request = SmallRequest();
  request.spec.train.micro_batch = 1;
  const int64_t least = LeastLimit(request);
  for (const int64_t kib : {least / 4, least / 2, least - 2 * kStep}) {
    SCOPED_TRACE(kib);
    SetLimit(request, kib);
    const std::string suggestion = Refusal(request).suggestion;
    ASSERT_THAT(suggestion, testing::StartsWith("resources.activationMemoryPerRank: "));
    ASSERT_TRUE(absl::EndsWith(suggestion, "KiB")) << suggestion;
    const int64_t suggested = std::atoll(suggestion.c_str() + suggestion.find(' '));
    EXPECT_GT(suggested, least - kStep);
    EXPECT_LE(suggested, least + std::max(kStep, least / 32)) << "one unit of the notation";
  }
}

// Returns a request for which nothing fits, even on all devices of the cluster.
PlanRequest OnOneNode(int64_t kib) {
  PlanRequest request = SmallRequest();
  request.cluster.groups[0].nodes = 1;
  SetDevices(request, kib);
  return WithRanks(request, 4);
}

TEST(SmallestChange, SequencesAreTheLongestThatFit) {
  PlanRequest request = OnOneNode(4200);
  request.spec.train.global_batch = 1;
  for (const int64_t seq : {1024, 2048}) {
    SetSeq(request, seq);
    SCOPED_TRACE(seq);
    const std::optional<int64_t> longest = FirstThatFits(request, Numbers(seq * 15 / 16, seq / 16, -seq / 16), SetSeq);
    ASSERT_TRUE(longest.has_value());
    EXPECT_EQ(Refusal(request).suggestion, absl::StrCat("model.seq: ", *longest));
  }
}

TEST(SmallestChange, MoreNodesThenLargerDevices) {
  PlanRequest request = OnOneNode(2000);
  PlanRequest larger = request;
  larger.cluster.groups[0].nodes = 8;
  const std::optional<int64_t> fewest = FirstThatFits(larger, Numbers(5, 32), SetRanks);
  ASSERT_TRUE(fewest.has_value());
  const int64_t nodes = (*fewest - 1) / 4;
  EXPECT_EQ(Refusal(request).suggestion,
            absl::StrCat("resources.ranks: ", *fewest, " (", nodes, nodes == 1 ? " more node)" : " more nodes)"));
  // Two ranks hold half of the states each. More nodes do not change this.
  request = WithRanks(request, 2);
  request.spec.parallel = {.tp = 2, .pp = 1, .dp = 1};
  SetDevices(request, 200);
  const std::string suggestion = Refusal(request).suggestion;
  ASSERT_THAT(suggestion, testing::StartsWith("devices with at least ")) << suggestion;
  const int64_t suggested = std::atoll(suggestion.c_str() + std::string("devices with at least ").size()) *
                            (absl::StrContains(suggestion, "MiB") ? 1024 : 1);
  PlanRequest changed = request;
  SetDevices(changed, suggested);
  EXPECT_TRUE(Fits(changed));
  SetDevices(changed, suggested - std::max<int64_t>(1, suggested / 32));
  EXPECT_FALSE(Fits(changed)) << "one unit of the notation less";
}

TEST(SmallestChange, WhereScoresPrevailAttentionIsFused) {
  PlanRequest request = SmallRequest();
  request.spec.model.attention = AttentionKernel::kUnfused;
  request.spec.train.global_batch = 4;
  request.spec.train.micro_batch = 2;
  SetSeq(request, 2048);  // The attention scores are 4 heads of 2048 * 2048 floats; with two samples they take 128 MiB.
  SetDevices(request, 110 * 1024);
  const Infeasible long_one = Refusal(request);
  EXPECT_EQ(long_one.suggestion, "model.attention: fused");
  EXPECT_THAT(long_one.reason,
              HasSubstr("the scores of unfused attention over model.seq 2048 take 128.0 MiB of it in each layer"));
  request.spec.model.attention = AttentionKernel::kFused;
  EXPECT_TRUE(Fits(request));
  // Fused attention is not suggested if even the states do not fit, or if the scores are small.
  request.spec.model.attention = AttentionKernel::kUnfused;
  SetDevices(request, 1000);
  EXPECT_THAT(Refusal(request).suggestion, Not(HasSubstr("model.attention")));
  request = SmallRequest();
  request.spec.model.attention = AttentionKernel::kUnfused;
  request.spec.train.micro_batch = 16;
  SetLimit(request, 1500);
  const Infeasible short_one = Refusal(request);
  EXPECT_THAT(short_one.reason, Not(HasSubstr("scores")));
  EXPECT_THAT(short_one.suggestion, HasSubstr("train.microBatch: "));
}

TEST(SmallestChange, ModesThatTheJobForbidsMayHelp) {
  PlanRequest request = SmallRequest();
  request = WithRanks(request, 4);
  request.spec.parallel = {.tp = 1, .pp = 1, .dp = 4, .zero = ZeroStage::kNone};
  SetDevices(request, 10'000);
  ASSERT_FALSE(Fits(request));
  EXPECT_EQ(Refusal(request).suggestion, "parallel.zero: auto");
}

}  // namespace
}  // namespace lynx
