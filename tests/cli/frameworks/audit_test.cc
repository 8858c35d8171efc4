#include "cli/frameworks/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/run_settings.h"
#include "planner/cost/cluster_topology.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A device of round numbers: 16 GiB, 10 TFLOP/s, eight in a node.
ClusterTopology Cluster(Bytes memory = kGiB * 16) {
  HardwareProfile profile = StatedCpuProfile();
  profile.device_kind = "cuda: test";
  profile.intra_node = {Nanos(5'000), 100'000'000'000};
  profile.inter_node = {Nanos(10'000), 10'000'000'000};
  return UniformCluster(1, 8, profile, memory);
}

std::string Script(const std::string& more = "") {
  return "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 "
         "--seq-length 1024 --global-batch-size 64 --vocab-size 32768 --train-iters 10 --swiglu --normalization RMSNorm "
         "--disable-bias-linear --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --bf16 "
         "--attention-backend flash --untie-embeddings-and-output-weights --mock-data " +
         more;
}
std::string Sharded(const std::string& more = "") {
  return Script(
      "--micro-batch-size 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel "
      "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather " +
      more);
}

ImportedRun Imported(const std::string& text) {
  ImportRequest request;
  request.text = text;
  request.file = "run.sh";
  request.folder = "/runs";
  absl::StatusOr<ImportedRun> run = ImportRun(Framework::kMegatron, request);
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << text;
  return run.ok() ? *std::move(run) : ImportedRun();
}

RunAudit Audited(const std::string& text, const std::string& log = "", const ClusterTopology& cluster = Cluster()) {
  ImportedRun run = Imported(text);
  std::optional<RunLog> read;
  if (!log.empty()) {
    absl::StatusOr<RunLog> parsed = ReadRunLog(run, log, "log.txt");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (parsed.ok()) read = *std::move(parsed);
  }
  absl::StatusOr<RunAudit> audit = AuditOf(std::move(run), cluster, std::move(read));
  EXPECT_TRUE(audit.ok()) << audit.status();
  return audit.ok() ? *std::move(audit) : RunAudit();
}

TEST(Audit, SaysWhatARankHoldsAndAStepTakes) {
  const RunAudit audit = Audited(Sharded());
  ASSERT_EQ(audit.plan.memory.size(), 2U);
  EXPECT_TRUE(audit.plan.fits());
  EXPECT_GT(audit.plan.step.step, Nanos(0));
  EXPECT_EQ(audit.parts.sum(), audit.plan.step.step);
  EXPECT_EQ(audit.parts.recompute, Nanos(0));
  EXPECT_GE(audit.parts.rest, Nanos(0));
  const std::string text = AuditText(audit, "run.sh");
  EXPECT_THAT(text,
              HasSubstr("run: megatron, 16 devices, tp2 pp2 dp4 sp zero-optimizer order-tp-dp-pp, micro-batch 2 x 8, recompute "
                        "none (run.sh)\n"));
  EXPECT_THAT(text, HasSubstr("; fits, "));
  EXPECT_THAT(text, HasSubstr("of 16.0 GiB are left"));
  EXPECT_THAT(text, Not(HasSubstr("measured")));
  EXPECT_THAT(text, HasSubstr("best of megatron"));
  EXPECT_THAT(text, HasSubstr("  --set parallel."));
}

TEST(Audit, SaysByHowMuchItDoesNotFit) {
  const RunAudit audit = Audited(Sharded(), "", Cluster(kMiB * 512));
  EXPECT_FALSE(audit.plan.fits());
  EXPECT_THAT(AuditText(audit, "run.sh"), HasSubstr(absl::StrCat("does not fit: ", FormatBytes(audit.plan.peak() - kMiB * 512),
                                                                 " more than the 512.0 MiB")));
  const RunAudit unknown = Audited(Sharded(), "", Cluster(Bytes(0)));
  EXPECT_THAT(AuditText(unknown, "run.sh"), HasSubstr("does not say how much a device has"));
}

TEST(Audit, RecomputationTakesTimeAndFreesMemory) {
  const RunAudit none = Audited(Sharded());
  const RunAudit full = Audited(Sharded("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"));
  const RunAudit half = Audited(Sharded("--recompute-granularity full --recompute-method block --recompute-num-layers 2"));
  EXPECT_GT(full.parts.recompute, Nanos(0));
  EXPECT_LT(none.plan.step.step, half.plan.step.step);
  EXPECT_LT(half.plan.step.step, full.plan.step.step);
  EXPECT_GT(none.plan.memory[0].activations, half.plan.memory[0].activations);
  EXPECT_GT(half.plan.memory[0].activations, full.plan.memory[0].activations);
  EXPECT_EQ(half.recomputed_permille, 500);
  EXPECT_LE(std::abs((half.parts.sum() - half.plan.step.step).value), 10) << "but for rounding";
  EXPECT_THAT(AuditText(half, "run.sh"), HasSubstr("only some layers recompute: 50.0% of them"));
  const RunAudit groups = Audited(Sharded("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2"));
  EXPECT_EQ(groups.plan.step.step, full.plan.step.step);
  EXPECT_THAT(AuditText(groups, "run.sh"), HasSubstr("groups of 2 layers are counted as groups of one layer"));
}

TEST(Audit, ListsWhatModulesKeepAndRunAgain) {
  const RunAudit none = Audited(Sharded());
  const RunAudit mlp = Audited(Sharded("--recompute-granularity selective --recompute-modules mlp"));
  EXPECT_LT(mlp.plan.memory[0].activations, none.plan.memory[0].activations);
  EXPECT_GT(mlp.plan.step.step, none.plan.step.step);
  const std::string text = AuditText(mlp, "run.sh");
  EXPECT_THAT(text, HasSubstr("recompute selective (mlp) (run.sh)"));
  EXPECT_THAT(text, testing::ContainsRegex("a layer keeps [0-9.]+ MiB of a microbatch: x [0-9.]+ MiB, ln1 [^\n]*, x1 "));
  EXPECT_THAT(text, testing::ContainsRegex("and runs again, in [^\n]*: ln2 [^\n]*, fc1 [^\n]*, fc2 [^\n]*, collectives "));
  EXPECT_THAT(AuditText(none, "run.sh"), Not(HasSubstr("and runs again")));
  EXPECT_EQ(nlohmann::json::parse(AuditJson(mlp))["run"]["recomputeModules"], "mlp");
  // One set of modules is changed for another by one flag.
  StepRequest other = mlp.plan.request;
  other.modules = {RecomputeModule::kCoreAttn};
  const SettingChanges changes = ChangesOf(Framework::kMegatron, mlp.plan.request, other);
  ASSERT_EQ(changes.set.size(), 1U);
  EXPECT_EQ(SettingText(Framework::kMegatron, changes.set[0]), "--recompute-modules core_attn");
}

TEST(Audit, ListsEachKindOfLayer) {
  const auto with = [](const std::string& modules) {
    return Audited(
        Script("--micro-batch-size 2 --num-experts 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
               "--moe-layer-freq '([0]*2+[1]*6)' --recompute-granularity selective --recompute-modules " +
               modules));
  };
  const RunAudit dense = with("mlp"), both = with("mlp moe");
  EXPECT_THAT(AuditText(dense, "run.sh"), HasSubstr("\na layer without experts keeps "));
  EXPECT_THAT(AuditText(dense, "run.sh"), Not(HasSubstr("a layer with experts keeps ")));
  EXPECT_THAT(AuditText(both, "run.sh"), HasSubstr("\na layer with experts keeps "));
  EXPECT_THAT(AuditText(both, "run.sh"), HasSubstr("\na layer without experts keeps "));
  EXPECT_GT(dense.parts.recompute, Nanos(0));
  EXPECT_GT(both.parts.recompute, dense.parts.recompute);
}

TEST(Audit, SaysWhatOfARecomputationIsTheHosts) {
  RunAudit mlp = Audited(Sharded("--recompute-granularity selective --recompute-modules mlp"));
  EXPECT_THAT(AuditText(mlp, "run.sh"), Not(HasSubstr("waiting for the host")));
  mlp.plan.step.layer.recompute += Nanos(5'000'000);
  EXPECT_THAT(AuditText(mlp, "run.sh"), HasSubstr(", waiting for the host 5.0 ms\n"));
}

TEST(Audit, OtherPlansHaveTheNormsOfTheRun) {
  for (const bool local : {false, true}) {
    const RunAudit audit = Audited(Sharded(local ? "--transformer-impl local" : ""));
    ASSERT_TRUE(audit.best.has_value()) << audit.no_best;
    EXPECT_EQ(audit.best->request.traits.fuses_norms, !local);
  }
}

TEST(Audit, RefusesARecomputationThatTheFrameworkLacks) {
  for (const RecomputeMode mode : {RecomputeMode::kBalanced, RecomputeMode::kFullKeepCollectives}) {
    ImportedRun run = Imported(Sharded());
    run.job.recompute = mode;
    const absl::StatusOr<RunAudit> audit = AuditOf(run, Cluster(kGiB * 64), std::nullopt);
    EXPECT_THAT(std::string(audit.status().message()),
                HasSubstr(absl::StrCat("recompute: megatron does not have ", EnumName(mode), "; use none, selective or full")));
  }
}

TEST(Audit, CountsTheLayersOfEachStage) {
  const RunAudit even = Audited(Sharded());
  const RunAudit uneven = Audited(Sharded("--decoder-first-pipeline-num-layers 6"));
  EXPECT_GT(uneven.plan.memory[0].weights, even.plan.memory[0].weights);
  EXPECT_LT(uneven.plan.memory[1].weights, even.plan.memory[1].weights);
  EXPECT_NE(uneven.plan.step.step, even.plan.step.step);
  EXPECT_EQ(uneven.parts.layers, even.parts.layers * 6 / 4);
}

TEST(Audit, CountsTheFlagsThatOverlap) {
  const RunAudit with = Audited(Sharded());
  const RunAudit without = Audited(absl::StrReplaceAll(Sharded(), {{"--overlap-grad-reduce --overlap-param-gather", ""}}));
  EXPECT_GT(without.parts.reduction, with.parts.reduction);
}

constexpr char kLog[] = R"(using world size: 16, data-parallel size: 4
 [2026-11-01 10:00:01.1] iteration        1/      10 | consumed samples:           64 | elapsed time per iteration (ms): 90000.0 | learning rate: 3.0E-04 | global batch size:    64 | lm loss: 1.1E+01 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 1000.00 | max allocated: 2048.00 | reserved: 3000.00 | max reserved: 3000.00
[Rank 8] (after 1 iterations) memory (MB) | allocated: 1000.00 | max allocated: 3072.00 | reserved: 3500.00 | max reserved: 3500.00
 [2026-11-01 10:00:02.1] iteration        2/      10 | consumed samples:          128 | elapsed time per iteration (ms): 5000.0 | throughput per GPU (TFLOP/s/GPU): 10.0 | global batch size:    64 |
 iteration        3/      10 | consumed samples: 192 | elapsed time per iteration (ms): 1000.0 | throughput per GPU (TFLOP/s/GPU): 50.0 | global batch size:    64 |
 iteration        4/      10 | consumed samples: 256 | elapsed time per iteration (ms): 1200.5 | throughput per GPU (TFLOP/s/GPU): 48.0 | global batch size:    64 |
 iteration        5/      10 | consumed samples: 320 | elapsed time per iteration (ms): 1100.0 | throughput per GPU (TFLOP/s/GPU): 49.0 | global batch size:    64 |
)";

TEST(RunLog, ReadsMegatron) {
  const absl::StatusOr<RunLog> log = ReadRunLog(Imported(Sharded()), kLog, "log.txt");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(log->steps.size(), 5U);
  EXPECT_EQ(log->steps[3].step, 4);
  EXPECT_EQ(log->steps[3].time, Nanos(1'200'500'000));
  EXPECT_EQ(log->most_allocated, kGiB * 3);
  EXPECT_EQ(log->tflops, 49);
  EXPECT_EQ(log->global_batch, 64);
  const StepTimes times = TimesOf(*log);
  EXPECT_EQ(times.median, Nanos(1'100'000'000)) << "without the first two";
  EXPECT_EQ(times.shortest, Nanos(1'000'000'000));
  EXPECT_EQ(times.longest, Nanos(1'200'500'000));
  EXPECT_EQ(times.count, 3U);
  EXPECT_EQ(times.first, 3);
  EXPECT_EQ(times.last, 5);
}

std::string Step(int number, int batch, int milliseconds, int tflops = 0) {
  return absl::StrCat("iteration ", number, "/ 10 | elapsed time per iteration (ms): ", milliseconds,
                      tflops > 0 ? absl::StrCat(" | throughput per GPU (TFLOP/s/GPU): ", tflops) : "",
                      " | global batch size: ", batch, " |\n");
}

TEST(RunLog, TakesTheStepsWithTheLastBatch) {
  const std::string text =
      Step(1, 16, 100, 1) + Step(2, 32, 200, 2) + Step(3, 64, 9000, 3) + Step(4, 64, 1000, 50) + Step(5, 64, 2000, 40);
  const absl::StatusOr<RunLog> log = ReadRunLog(Imported(Sharded()), text, "log.txt");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(log->steps.size(), 3U);
  EXPECT_EQ(log->steps[0].step, 3);
  EXPECT_EQ(log->other_batches, 2U);
  EXPECT_EQ(log->global_batch, 64);
  EXPECT_EQ(log->tflops, 45) << "of the steps that are counted";
  const std::string shown = AuditText(Audited(Sharded(), text), "run.sh");
  EXPECT_THAT(shown, HasSubstr("measured: step 1.50 s, the median of 2 from 4 to 5"));
  EXPECT_THAT(shown, HasSubstr("left out: 2 steps of the log with other batches than the last, of 64 samples"));
  const std::string ramped = AuditText(Audited(Sharded(), Step(1, 16, 1000) + Step(2, 32, 1000)), "run.sh");
  EXPECT_THAT(ramped, HasSubstr(" 32768 tokens/s; ")) << "32 samples of 1024 tokens in a second";
}

TEST(RunLog, TheFirstStepIsLeftOutOfFew) {
  const auto times = [](const std::string& text) { return TimesOf(*ReadRunLog(Imported(Sharded()), text, "log.txt")); };
  EXPECT_EQ(times(Step(1, 64, 9000)).median, Nanos(9'000'000'000)) << "there is no other";
  EXPECT_EQ(times(Step(1, 64, 9000) + Step(2, 64, 1000)).median, Nanos(1'000'000'000));
  const StepTimes three = times(Step(1, 64, 9000) + Step(2, 64, 1000) + Step(3, 64, 1500));
  EXPECT_EQ(three.median, Nanos(1'250'000'000)) << "between the two";
  EXPECT_EQ(three.count, 2U);
  EXPECT_EQ(three.first, 2);
}

TEST(RunLog, RefusesOtherText) {
  const ImportedRun run = Imported(Sharded());
  const auto error = [&](const std::string& text) { return std::string(ReadRunLog(run, text, "log.txt").status().message()); };
  EXPECT_THAT(error("hello\nworld"), HasSubstr("log.txt: found no line of megatron with the time of a step"));
  EXPECT_THAT(error("iteration 1/2 | elapsed time per iteration (ms): nan |"), HasSubstr("found no line"));
  EXPECT_THAT(error("iteration 1/2 | elapsed time per iteration (ms): 1e300 |"), HasSubstr("found no line"));
}

TEST(Audit, ShowsWhatWasMeasuredBesideWhatIsPredicted) {
  const std::string text = AuditText(Audited(Sharded(), kLog), "run.sh");
  EXPECT_THAT(text, HasSubstr("measured: step 1.10 s, the median of 3 from 3 to 5 (1.00 s to 1.20 s)"));
  EXPECT_THAT(text, HasSubstr("measured: memory 3.0 GiB allocated at most; "));
  EXPECT_THAT(text, HasSubstr("measured: 49.0 TFLOP/s on each device"));
  EXPECT_THAT(text, Not(HasSubstr("is it the log of this run?")));
  const std::string other = AuditText(Audited(absl::StrReplaceAll(Sharded(), {{"size 64", "size 128"}}), kLog), "run.sh");
  EXPECT_THAT(other, HasSubstr("the log says 64 samples a step, the arguments say 128: is it the log of this run?"));
}

// If a run has the settings that the audit proposes, its plan is the plan that the audit showed.
TEST(Audit, ChangedSettingsMakeTheBestPlan) {
  for (const int gib : {2, 4, 16}) {
    const RunAudit audit = Audited(Sharded(), "", Cluster(kGiB * gib));
    if (!audit.best) continue;
    std::string more;
    for (const RunSetting& setting : SettingsOf(Framework::kMegatron, audit.best->request)) {
      absl::StrAppend(&more, SettingText(Framework::kMegatron, setting), " ");
    }
    const RunAudit changed = Audited(Script(more), "", Cluster(kGiB * gib));
    EXPECT_EQ(changed.plan.step.step, audit.best->step.step) << more;
    EXPECT_EQ(changed.plan.peak(), audit.best->peak()) << more;
    ASSERT_TRUE(changed.best.has_value());
    EXPECT_TRUE(ChangesOf(Framework::kMegatron, changed.plan.request, changed.best->request).empty()) << more;
    EXPECT_THAT(AuditText(changed, "run.sh"), HasSubstr("the run has these settings already"));
    EXPECT_LE(audit.best->step.step, audit.plan.step.step);
  }
  EXPECT_TRUE(Audited(Sharded()).best.has_value());
}

TEST(Audit, MemoryThatIsReservedIsSaidSo) {
  RunAudit audit = Audited(Sharded(), kLog);
  EXPECT_EQ(nlohmann::json::parse(AuditJson(audit))["measured"]["allocatedBytes"], 3 * kGiB.value);
  audit.run.framework = Framework::kTorchtitan;
  EXPECT_THAT(AuditText(audit, "run.toml"), HasSubstr("measured: memory 3.0 GiB reserved; "));
  const nlohmann::json measured = nlohmann::json::parse(AuditJson(audit))["measured"];
  EXPECT_EQ(measured["reservedBytes"], 3 * kGiB.value);
  EXPECT_FALSE(measured.contains("allocatedBytes"));
}

TEST(Audit, IsJsonToo) {
  const nlohmann::json json = nlohmann::json::parse(AuditJson(Audited(Sharded("--odd-flag 1"), kLog)));
  EXPECT_EQ(json["framework"], "megatron");
  EXPECT_EQ(json["devices"], 16);
  EXPECT_EQ(json["memory"]["stages"].size(), 2U);
  EXPECT_TRUE(json["memory"]["fits"].get<bool>());
  EXPECT_EQ(json["measured"]["stepNs"], 1'100'000'000);
  EXPECT_GT(json["best"]["stepNs"].get<int64_t>(), 0);
  EXPECT_TRUE(json["lynx"]["changes"]["set"].contains("parallel.tp") || json["lynx"]["changes"]["set"].contains("parallel.pp"));
  EXPECT_EQ(json["unknown"][0], "--odd-flag 1");
}

TEST(Audit, SaysWhereTheEngineCannotRunThePlan) {
  const RunAudit audit = Audited(Sharded("--apply-layernorm-1p"));
  EXPECT_THAT(AuditText(audit, "run.sh"), HasSubstr("lynx: can be planned only: "));
  EXPECT_THAT(AuditText(audit, "run.sh"), HasSubstr("norm-offset"));
  EXPECT_THAT(Audited(Sharded()).no_lynx, IsEmpty());
}

TEST(Audit, RefusesClustersOfSeveralKinds) {
  ClusterTopology mixed = Cluster();
  mixed.groups.push_back(mixed.groups.front());
  const absl::StatusOr<RunAudit> audit = AuditOf(Imported(Sharded()), mixed, std::nullopt);
  EXPECT_EQ(audit.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lynx::cli
