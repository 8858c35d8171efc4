#include "planner/candidates/no_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/candidates/search.h"
#include "planner/schedule/schedule_generate.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns a job for sixteen ranks on four nodes.
JobSpec Spec() {
  JobSpec spec;
  spec.name = "job";
  spec.data.path = "corpus";
  spec.model = {.layers = 30, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  spec.train.steps = 1;
  spec.train.global_batch = 16;
  spec.resources = {.min_ranks = 8, .max_ranks = 8};
  return spec;
}

ClusterTopology Cluster() { return UniformCluster(4, 4, StatedCpuProfile()); }

std::string ErrorOf(JobSpec spec, bool even_batches = false) {
  Normalize(spec);
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus()) << "the job is valid, it only has no layout";
  const auto candidates = Candidates(spec, Cluster(), PlanTarget::kLynxEngine, even_batches);
  EXPECT_EQ(candidates.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(candidates.status().message());
}

struct Case {
  const char* name;
  std::function<void(JobSpec&)> change;
  const char* expected;
  bool even_batches = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class NoLayout : public testing::TestWithParam<Case> {};

// Each error text must name fields of the job file, their values, the rule, and what the user can write instead.
TEST_P(NoLayout, NamesTheReason) {
  JobSpec spec = Spec();
  GetParam().change(spec);
  EXPECT_EQ(ErrorOf(spec, GetParam().even_batches), absl::StrCat("no parallel layout is possible: ", GetParam().expected));
}

using enum ScheduleKind;

INSTANTIATE_TEST_SUITE_P(
    Rules, NoLayout,
    testing::Values(
        Case{"ranks", [](JobSpec& s) { s.parallel = {.tp = 2, .pp = 3}; },
             "resources.ranks is 8, which is not a multiple of parallel.tp * parallel.pp = 2 * 3 = 6: use 6 or 12 "
             "ranks, or "
             "leave a degree to the planner (auto)"},
        Case{"rank_range",
             [](JobSpec& s) {
               s.parallel.pp = 6;
               s.resources.min_ranks = 7;
               s.resources.max_ranks = 11;
             },
             "resources.ranks is 7..11, which holds no multiple of parallel.pp = 6: use 6 or 12 ranks, or leave a "
             "degree to the "
             "planner (auto)"},
        Case{"too_few_ranks",
             [](JobSpec& s) {
               s.parallel = {.tp = 4, .pp = 5};
               s.resources.max_ranks = 32;
             },
             "resources.ranks is 8..32 and the cluster has 16 devices, which is less than parallel.tp * parallel.pp "
             "= 4 * 5 = "
             "20: use at least 20 ranks, or smaller degrees"},
        Case{"all_pinned", [](JobSpec& s) { s.parallel = {.tp = 2, .pp = 2, .dp = 1}; },
             "resources.ranks is 8, but the job fixes parallel.tp * parallel.pp * parallel.dp = 2 * 2 * 1 = 4: use "
             "resources.ranks "
             "4, or leave one of these to the planner (auto)"},
        Case{"node",
             [](JobSpec& s) {
               s.parallel.tp = 8;
               s.model.heads = 8;
             },
             "parallel.tp is 8, but a node has 4 devices and a tensor-parallel group stays on one node: use at most "
             "4"},
        Case{"chunks", [](JobSpec& s) { s.parallel = {.pp = 8, .virtual_stages = 4}; },
             "parallel.pp * parallel.virtualStages is 8 * 4 = 32 chunks, but model.layers is 30, and every chunk "
             "needs a layer: "
             "use parallel.virtualStages of at most 3 or parallel.pp of at most 7"},
        Case{"chunks_of_any_pipeline", [](JobSpec& s) { s.parallel.virtual_stages = 16; },
             "parallel.pp * parallel.virtualStages is at least 2 * 16 = 32 chunks, but model.layers is 30, and every "
             "chunk needs a layer: use parallel.virtualStages of at most 15"},
        Case{"zero_bubble_v",
             [](JobSpec& s) {
               s.parallel = {.pp = 4, .schedule = kZeroBubbleV};
               s.model.layers = 7;
             },
             "parallel.schedule zero-bubble-v cuts the model into 2 * parallel.pp = 8 chunks, but model.layers is 7, "
             "and every "
             "chunk needs a layer: use parallel.pp of at most 3"},
        Case{"virtual_stages_without_pipeline", [](JobSpec& s) { s.parallel = {.pp = 1, .virtual_stages = 2}; },
             "parallel.virtualStages 2 needs parallel.pp above 1, but parallel.pp is 1: use parallel.virtualStages 1 "
             "and schedule "
             "auto, or more stages"},
        Case{"interleaved_on_one_rank",
             [](JobSpec& s) {
               s.parallel.schedule = kInterleaved;
               s.resources = {};
             },
             "parallel.schedule interleaved needs parallel.pp above 1, but the job may have 1 rank only: use "
             "parallel.virtualStages 1 and schedule auto, or more stages"},
        Case{"interleaved_without_chunks", [](JobSpec& s) { s.parallel = {.virtual_stages = 1, .schedule = kInterleaved}; },
             "parallel.schedule interleaved needs parallel.virtualStages above 1, but it is 1: use schedule 1f1b or "
             "auto"},
        Case{"chimera_on_odd_ranks",
             [](JobSpec& s) {
               s.parallel = {.pp = 3, .schedule = kChimera};
               s.resources.max_ranks = 9;
             },
             "parallel.schedule chimera needs an even parallel.pp, but it is 3: use 4 or 2, or another schedule"},
        Case{"replicas",
             [](JobSpec& s) {
               s.parallel = {.tp = 1, .pp = 1};
               s.train.global_batch = 5;
             },
             "train.globalBatch is 5, which is less than parallel.dp = 8, and every replica needs a sample: resources.ranks is "
             "8 and parallel.tp * parallel.pp = 1 * 1 = 1 leave 8 replicas (parallel.dp); change train.globalBatch, "
             "resources.ranks or a degree"},
        Case{"samples",
             [](JobSpec& s) {
               s.parallel = {.tp = 2, .pp = 1};
               s.train.micro_batch = 8;
             },
             "train.globalBatch is 16, and with parallel.dp = 4 no replica gets the samples of one microbatch, "
             "train.microBatch = 8: "
             "resources.ranks is 8 and parallel.tp * parallel.pp = 2 * 1 = 2 leave 4 replicas (parallel.dp); change "
             "train.globalBatch, resources.ranks or a degree"},
        Case{"replicas_of_even_batches",
             [](JobSpec& s) {
               s.parallel = {.tp = 1, .pp = 1};
               s.train.global_batch = 15;
             },
             "train.globalBatch is 15, which is not a multiple of parallel.dp = 8: resources.ranks is 8 and "
             "parallel.tp * "
             "parallel.pp = 1 * 1 = 1 leave 8 replicas (parallel.dp); change train.globalBatch, resources.ranks or a "
             "degree",
             /*even_batches=*/true},
        Case{"samples_of_even_batches",
             [](JobSpec& s) {
               s.parallel = {.tp = 2, .pp = 1};
               s.train.micro_batch = 8;
             },
             "train.globalBatch is 16, which is not a multiple of train.microBatch * parallel.dp = 32: "
             "resources.ranks is 8 and "
             "parallel.tp * parallel.pp = 2 * 1 = 2 leave 4 replicas (parallel.dp); change train.globalBatch, "
             "resources.ranks or "
             "a degree",
             /*even_batches=*/true},
        Case{"interleaved_microbatches",
             [](JobSpec& s) {
               s.parallel = {.tp = 1, .pp = 3, .virtual_stages = 2};
               s.resources = {.min_ranks = 6, .max_ranks = 6};
             },
             "for other frameworks the interleaved schedule (parallel.virtualStages 2) needs a multiple of parallel.pp = 3 "
             "microbatches (train.globalBatch / (parallel.dp * train.microBatch)), here of 1 or 2 or 4 or 8: change "
             "train.globalBatch or parallel.pp, "
             "or use parallel.virtualStages 1 and schedule auto",
             /*even_batches=*/true},
        Case{"chimera_microbatches",
             [](JobSpec& s) {
               s.parallel = {.tp = 4, .pp = 2, .schedule = kChimera};
               s.train.global_batch = 15;
               s.train.micro_batch = 1;
             },
             "parallel.schedule chimera needs an even number of microbatches (train.globalBatch / (parallel.dp * "
             "train.microBatch)), here of 15: change train.globalBatch or train.microBatch, or use another schedule"},
        Case{"slots",
             [](JobSpec& s) {
               s.parallel = {.tp = 1, .pp = 16, .schedule = kOneForwardOneBackward};
               s.train.global_batch = 1 << 20;
               s.train.micro_batch = 1;
               s.resources = {.min_ranks = 16, .max_ranks = 16};
             },
             "a schedule has at most 16777216 slots, each microbatch takes 32 on 16 stages: too many microbatches "
             "(train.globalBatch / (parallel.dp * train.microBatch)), here of 1048576: use a larger train.microBatch "
             "or "
             "parallel.dp, or a smaller train.globalBatch"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(NoLayout, ACustomScheduleHasItsMicrobatches) {
  JobSpec spec = Spec();
  spec.parallel = {
      .tp = 1, .schedule = kCustom, .schedule_text = ScheduleText(*GenerateSchedule(kOneForwardOneBackward, 4, 1, 3))};
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("the custom schedule is one of 3 microbatches (train.globalBatch / (parallel.dp * "
                        "train.microBatch)), here of 1 or 2 or 4 or 8: use train.globalBatch of 3 * parallel.dp * "
                        "train.microBatch"));
}

// Here no single field is the reason, so the planner looks for values that would work.
TEST(NoLayout, NamesWhatWouldDo) {
  JobSpec spec = Spec();
  spec.model.layers = 6;
  spec.resources = {.min_ranks = 7, .max_ranks = 7};
  EXPECT_EQ(ErrorOf(spec, /*even_batches=*/true),
            "no parallel layout of 7 to 7 ranks is possible: parallel.tp must divide model.heads 4 and model.ffn 512 "
            "and be at most "
            "4 (devices of a node), parallel.pp be at most model.layers 6, parallel.dp * train.microBatch divide "
            "train.globalBatch "
            "16; there are layouts with resources.ranks 6 or 8");
  spec.resources = {.min_ranks = 7, .max_ranks = 7};
  spec.train.global_batch = 6;
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("parallel.dp be at most train.globalBatch 6; there are layouts with resources.ranks 6 or 8"));
  spec.train.global_batch = 16;
  spec.resources = {.min_ranks = 5, .max_ranks = 5};
  spec.parallel.dp = 1;
  spec.model.layers = 4;
  const std::string error = ErrorOf(spec);
  EXPECT_THAT(error, HasSubstr("(the job fixes parallel.dp 1)"));
  EXPECT_THAT(error, HasSubstr("or with resources.ranks 4 or 6"));
  spec = Spec();
  spec.resources = {.min_ranks = 16, .max_ranks = 16};
  spec.model.layers = 1;
  spec.parallel.dp = 2;
  EXPECT_THAT(ErrorOf(spec),
              HasSubstr("there are layouts with parallel.dp left to the planner (auto), or with resources.ranks"));
}

// The validation of the job file finds degrees that do not divide the model. It needs no cluster for this.
TEST(NoLayout, DegreesThatDoNotDivideTheModelAreNotValid) {
  const auto error = [](const std::function<void(JobSpec&)>& change) {
    JobSpec spec = Spec();
    change(spec);
    return std::string(ValidateJobSpec(spec).message());
  };
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.tp = 3; }),
              StartsWith("model.heads is 4: must be a multiple of parallel.tp, which is 3"));
  EXPECT_THAT(error([](JobSpec& s) {
                s.parallel.tp = 4;
                s.model.family = ModelFamily::kLlama;
                s.model.dropout = 0;
                s.model.kv_heads = 2;
              }),
              StartsWith("model.kvHeads is 2: must be a multiple of parallel.tp, which is 4"));
  EXPECT_THAT(error([](JobSpec& s) {
                s.parallel.tp = 4;
                s.model.ffn = 510;
              }),
              StartsWith("model.ffn is 510: must be a multiple of parallel.tp, which is 4"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.cp = 3; }),
              StartsWith("model.seq is 64: must be a multiple of 2 * parallel.cp, which is 6"));
  EXPECT_THAT(error([](JobSpec& s) {
                s.parallel.pp = 31;
                s.resources.max_ranks = 31;
              }),
              HasSubstr("every stage needs a layer"));
  EXPECT_THAT(error([](JobSpec& s) { s.parallel.dp = 17; }),
              StartsWith("train.globalBatch is 16: must be at least parallel.dp, which is 17"));
}

}  // namespace
}  // namespace lynx
