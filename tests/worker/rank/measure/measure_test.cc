// Tests measuring: the fit of a link's cost, the stopwatch, and the program lynx-rank with --measure and --measure-link.
#include "worker/contract/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/worker/rank/rank_processes.h"
#include "worker/rank/measure/measure_host.h"
#include "worker/rank/measure/measure_link.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FitLink, FindsTheLineThatItWasGiven) {
  // The link has 20 us latency and 250 MB/s, and each sample has 2 steps: time = 40 us + bytes * 4 ns.
  std::vector<TransferSample> samples;
  for (int64_t bytes : {4096, 65536, 1048576}) samples.push_back({2, Bytes(bytes), Nanos(40'000 + 4 * bytes)});
  const LinkCost link = FitLink(samples);
  EXPECT_NEAR(static_cast<double>(link.latency.value), 20'000, 1);
  EXPECT_NEAR(static_cast<double>(link.bytes_per_second), 250e6, 250);
}

TEST(FitLink, TakesTransfersOfSeveralKindsTogether) {
  // The samples are of rings of 4 ranks and of single messages, on a link with 5 us latency and 100 GB/s.
  std::vector<TransferSample> samples;
  for (const int64_t steps : {1, 3, 6}) {
    for (const int64_t bytes : {100'000, 10'000'000})
      samples.push_back({steps, Bytes(bytes), Nanos(5'000 * steps + bytes / 100)});
  }
  const LinkCost link = FitLink(samples);
  EXPECT_NEAR(static_cast<double>(link.latency.value), 5'000, 1);
  EXPECT_NEAR(static_cast<double>(link.bytes_per_second), 100e9, 1e6);
}

TEST(FitLink, NeverGivesANegativeLatency) {
  const LinkCost link = FitLink({{2, Bytes(1000), Nanos(900)}, {2, Bytes(2000), Nanos(2000)}});
  EXPECT_EQ(link.latency, Nanos(0));
  EXPECT_GT(link.bytes_per_second, 0);
}

TEST(FitLink, SurvivesTimesWithoutASlope) {
  const LinkCost link = FitLink({{2, Bytes(1000), Nanos(900)}, {2, Bytes(2000), Nanos(900)}});
  EXPECT_EQ(link.latency, Nanos(450));
  EXPECT_GT(link.bytes_per_second, 0);
}

// While a process waits, wall-clock time passes, but almost no processor time.
TEST(Stopwatch, CountsProcessorTimeWithoutWhatTheProcessWaits) {
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  EXPECT_GE(Stopwatch(1, 10).MedianOf(wait), Nanos(100'000'000));
  const Nanos waiting = Stopwatch(1, 10, Counted::kProcessor).MedianOf(wait);
  EXPECT_LT(waiting, Nanos(50'000'000));
  // The work of all threads counts, such as a copy that another thread makes.
  const Nanos all = Stopwatch(1, 10, Counted::kProcessor).MedianOf([] {
    std::thread([] {
      const Nanos begin = ProcessorTime(CLOCK_THREAD_CPUTIME_ID);
      while (ProcessorTime(CLOCK_THREAD_CPUTIME_ID) - begin < Nanos(20'000'000)) continue;
    }).join();
  });
  EXPECT_GE(all, Nanos(20'000'000));
}

TEST(Stopwatch, WarmsUpOnceAndCountsTheOtherRuns) {
  const auto runs = [](double budget_seconds) {
    std::vector<bool> counted;
    Stopwatch(5, budget_seconds).Repeat(3, [&](RunCounts counts) { counted.push_back(counts == RunCounts::kYes); });
    return counted;
  };
  EXPECT_THAT(runs(1000), ElementsAre(false, true, true, true));
  EXPECT_THAT(runs(0), ElementsAre(false, true)) << "one run counts, even if no time is left";
}

TEST(Measure, GivesEveryOpOfEveryShapeATime) {
  const TestFolder folder;
  LayerShape shape{.micro_batch = 2, .seq = 16, .hidden = 32, .heads = 4, .ffn = 64, .vocab = 61, .tp = 2, .dropout = true};
  MeasureRequest request{.shapes = {shape}, .cores = {}, .repetitions = 3, .budget_seconds = 20};
  shape.dropout = false;
  shape.sequence_parallel = true;
  request.shapes.push_back(shape);
  shape.family = ModelFamily::kLlama;
  shape.kv_heads = 2;
  shape.attention = AttentionKernel::kFused;
  request.shapes.push_back(shape);
  shape.dtype = DataType::kBfloat16;
  request.shapes.push_back(shape);
  shape.attention = AttentionKernel::kUnfused;
  request.shapes.push_back(shape);
  shape.experts = 4, shape.top_k = 2, shape.expert_ffn = 24, shape.capacity_permille = 1250;
  request.shapes.push_back(shape);
  shape.ep = 2;
  request.shapes.push_back(shape);
  shape.capacity_permille = 750, shape.dropless = true;  // rounds follow the ops, and are not measured
  request.shapes.push_back(shape);
  shape.shared_ffn = 40;
  request.shapes.push_back(shape);
  shape.shared_gate = true;
  request.shapes.push_back(shape);
  shape.attention = AttentionKernel::kFused;
  shape.kv_heads = 0, shape.head_dim = 10, shape.rotary_dims = 4;
  shape.query_rank = 12, shape.kv_rank = 6, shape.value_dim = 5;
  request.shapes.push_back(shape);
  shape.query_rank = 0;
  request.shapes.push_back(shape);
  const Output output = RunLynxRank(folder, {"--measure", folder.Write("request", MeasureRequestText(request))});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const absl::StatusOr<MeasureResult> result = ParseMeasureResult(output.out);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->device_kind, HasSubstr("cpu: "));
  EXPECT_GT(result->flops_per_second, 1'000'000);
  EXPECT_GT(result->bfloat16_flops_per_second, 1'000'000);
  EXPECT_GT(result->op_overhead, Nanos(0));
  EXPECT_GT(result->host.to_host_bytes_per_second, 1'000'000);
  EXPECT_GT(result->host.from_host_bytes_per_second, 1'000'000);
  EXPECT_GE(result->host.op_slowdown_permille, 1000);
  ASSERT_EQ(result->measured.size(), request.shapes.size());
  for (size_t i = 0; i < request.shapes.size(); ++i) {
    const ShapeTimes& times = result->measured[i];
    EXPECT_EQ(times.shape, request.shapes[i]);
    EXPECT_GT(times.optimizer_per_mega_parameter, Nanos(0));
    for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
      const OpTimes& op = times.ops[static_cast<size_t>(info.op)];
      EXPECT_GT(op.forward, Nanos(0)) << EnumName(info.op);
      EXPECT_EQ(op.weight > Nanos(0), info.has_weight_pass) << EnumName(info.op);
    }
  }
}

TEST(Measure, WhatCopiesCostIsTheSlowdownBesideThem) {
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(0)), 1000);
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(-5)), 1000);  // noise can make a small difference negative
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(200)), 1250);
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(500)), 2000);
  EXPECT_EQ(SlowdownBesideCopies(Nanos(100'000), Nanos(99'999)), 100'000);
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(1000)), 100'000);  // ops make no progress while copies run
  EXPECT_EQ(SlowdownBesideCopies(Nanos(1000), Nanos(3000)), 100'000);
}

TEST(Measure, ASpentBudgetStillGivesTheRates) {
  const TestFolder folder;
  const LayerShape shape{.micro_batch = 1, .seq = 16, .hidden = 32, .heads = 4, .ffn = 64, .vocab = 61, .tp = 1};
  const MeasureRequest request{.shapes = {shape}, .repetitions = 1000, .budget_seconds = 1e-9};
  const Output output = RunLynxRank(folder, {"--measure", folder.Write("request", MeasureRequestText(request))});
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_TRUE(ParseMeasureResult(output.out)->measured.empty());
}

TEST(MeasureLink, FitsLoopback) {
  const TestFolder folder;
  for (const bool encrypt : {false, true}) {
    const LinkRequest request{.repetitions = 3, .budget_seconds = 5, .encrypt = encrypt};
    const Output output = RunLynxRank(folder, {"--measure-link", folder.Write("request", LinkRequestText(request))});
    ASSERT_EQ(output.exit_code, 0) << output.err;
    const absl::StatusOr<LinkResult> result = ParseLinkResult(output.out);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(result->link.bytes_per_second, 1'000'000);
    EXPECT_GE(result->overlap_slowdown_permille, 1000);
    EXPECT_GT(result->communication_compute_permille, 0);  // a core is needed to move bytes
  }
}

TEST(Measure, ABadRequestIsNamed) {
  const TestFolder folder;
  const std::string path = folder.Write("request", "{\"shapes\": []}");
  for (const char* mode : {"--measure", "--measure-link"}) {
    const Output output = RunLynxRank(folder, {mode, path});
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_TRUE(output.out.empty());
    EXPECT_THAT(output.err, HasSubstr(path));
    EXPECT_THAT(output.err, HasSubstr("field '"));
  }
  EXPECT_THAT(RunLynxRank(folder, {"--measure", folder.path() + "/none"}).err, HasSubstr("/none"));
}

}  // namespace
}  // namespace lynx::worker
