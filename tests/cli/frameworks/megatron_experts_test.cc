// Tests the import of mixtures of experts in runs of Megatron-LM: which arguments become fields of the job, which are only
// reported, and which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/audit.h"
#include "planner/export/export.h"
#include "tests/cli/frameworks/megatron_runs.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A small Llama on two replicas with 8 experts.
std::string Experts(const std::string& arguments) {
  return SmallLlama(absl::StrCat("--num-experts 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall ", arguments));
}

TEST(ImportMegatronExperts, ReadsExperts) {
  const ImportedRun plain = Imported(Experts(""));
  EXPECT_EQ(plain.job.model.moe, (MoeSpec{.experts = 8, .top_k = 2}));
  EXPECT_EQ(plain.job.parallel.ep, 1);
  EXPECT_THAT(plain.not_taken, IsEmpty());
  EXPECT_THAT(plain.assumed, Contains(HasSubstr("model.moe.skew 1: all experts get as many rows")));
  const ImportedRun run =
      Imported(Experts("--moe-router-topk 4 --moe-ffn-hidden-size 96 --moe-router-pre-softmax --moe-aux-loss-coeff 1e-2 "
                       "--moe-z-loss-coeff 1e-3 --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity "
                       "--moe-token-drop-policy position --expert-model-parallel-size 2 --expert-tensor-parallel-size 1 "
                       "--moe-layer-freq '([1]*8)' --moe-router-dtype fp32 --moe-permute-fusion"));
  const MoeSpec expected{
      .experts = 8, .top_k = 4, .ffn = 96, .normalized = false, .capacity = 1.25, .aux_loss = 0.01, .z_loss = 0.001};
  EXPECT_EQ(run.job.model.moe, expected);
  EXPECT_EQ(run.job.parallel.ep, 2);
  EXPECT_EQ(run.job.model.plan_only, PlanOnlyFeatures{0});
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(run.unknown, IsEmpty());
  EXPECT_EQ(Imported(Experts("--moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type none")).job.model.moe.aux_loss, 0);
  EXPECT_EQ(
      Imported(Experts("--moe-aux-loss-coeff 2e-2 1e-2 --moe-router-load-balancing-type none aux_loss")).job.model.moe.aux_loss,
      0.01);
  EXPECT_EQ(Imported(Experts("--moe-expert-capacity-factor -1")).job.model.moe.capacity, 0) << "nothing is dropped";
  EXPECT_EQ(Imported(Experts("--moe-expert-capacity-factor 100")).job.model.moe.capacity, 8);
  using Modules = std::vector<RecomputeModule>;
  EXPECT_EQ(Imported(Experts("--recompute-granularity selective --recompute-modules moe_act layernorm"))
                .job.recompute_options.modules,
            (Modules{RecomputeModule::kLayernorm, RecomputeModule::kMoeAct}));
  EXPECT_EQ(Imported(Experts("--moe-layer-recompute")).job.recompute_options.modules,
            (Modules{RecomputeModule::kCoreAttn, RecomputeModule::kMoe}));
  EXPECT_EQ(Imported(SmallLlama("--num-experts 0")).job.model.moe, MoeSpec());
  EXPECT_EQ(Imported(Experts("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8")).job.model.matmul_type, MatmulType::kMxfp8);
}

TEST(ImportMegatronExperts, SaysWhatOfExpertsHasNoCounterpart) {
  const struct {
    const char* arguments;
    const char* said;
  } cases[] = {
      {"--moe-expert-capacity-factor 1 --moe-token-drop-policy position", "without --moe-pad-expert-input-to-capacity"},
      {"--moe-expert-capacity-factor 1", "--moe-token-drop-policy probs, Megatron-LM's default: a job drops the last rows"},
      {"--moe-router-score-function sqrtsoftplus",
       "--moe-router-score-function sqrtsoftplus: experts are planned as weighted by a softmax"},
      {"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4",
       "--moe-router-load-balancing-type seq_aux_loss with factor 0.0001"},
      {"--moe-router-load-balancing-type sinkhorn", "--moe-router-load-balancing-type sinkhorn: experts are planned as chosen"},
      {"--moe-token-dispatcher-type flex --expert-model-parallel-size 2",
       "--moe-token-dispatcher-type flex: the plan counts all-to-alls"},
      {"--moe-router-num-groups 4", "--moe-router-num-groups 4: the plan lets a token choose among all experts"},
      {"--overlap-moe-expert-parallel-comm", "--overlap-moe-expert-parallel-comm: not counted"},
      {"--bf16 --fp8-format hybrid --moe-shared-expert-intermediate-size 64",
       "--fp8-format: the products of models with shared experts, or with first layers without experts, are planned in 16 "
       "bits"},
      {"--recompute-granularity selective --recompute-modules mlp",
       "--recompute-modules mlp: recomputes nothing, for every layer"},
  };
  for (const auto& c : cases) EXPECT_THAT(Imported(Experts(c.arguments)).not_taken, Contains(HasSubstr(c.said))) << c.arguments;
  EXPECT_THAT(Imported(SmallLlama("--num-experts 8")).not_taken, Contains(HasSubstr("no --moe-grouped-gemm")));
  EXPECT_EQ(Imported(Experts("--moe-router-score-function sqrtsoftplus")).job.model.plan_only,
            Bit(PlanOnlyFeature::kOtherRouting));
}

TEST(ImportMegatronExperts, ReadsRoutersWithSigmoidsAndBiases) {
  const ImportedRun run = Imported(
      Experts("--moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias"));
  EXPECT_EQ(run.job.model.plan_only, PlanOnlyFeatures{0});
  const MoeSpec& moe = run.job.model.moe;
  EXPECT_EQ(moe.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(moe.normalized);
  EXPECT_EQ(moe.weight_scale, 2.5);
  EXPECT_TRUE(moe.router_bias);
  EXPECT_EQ(moe.bias_rate, 0.001) << "Megatron-LM's default";
  EXPECT_EQ(Imported(Experts("--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
                             "--moe-router-bias-update-rate 0"))
                .job.model.moe.bias_rate,
            0);
  EXPECT_FALSE(Imported(Experts("--moe-router-score-function sigmoid --moe-router-topk 1")).job.model.moe.normalized);
  EXPECT_THAT(ErrorOf(Experts("--moe-router-enable-expert-bias")), HasSubstr("needs --moe-router-score-function sigmoid"));
}

// Without further arguments, Megatron-LM shards experts by tensor parallelism too.
TEST(ImportMegatronExperts, ShardedExpertsArePlannedWholeOnMoreRanks) {
  const ImportedRun run = Imported(Experts("--tensor-model-parallel-size 2 --sequence-parallel"));
  EXPECT_EQ(run.job.parallel.ep, 2);
  EXPECT_THAT(run.not_taken, Contains(HasSubstr("--expert-tensor-parallel-size 2, which is that of tp: planned with whole "
                                                "experts on 2 ranks (parallel.ep)")));
  EXPECT_EQ(
      Imported(Experts("--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1")).job.parallel.ep,
      1);
  EXPECT_THAT(
      ErrorOf(absl::StrReplaceAll(Experts("--tensor-model-parallel-size 2 --sequence-parallel"), {{"experts 8", "experts 3"}})),
      HasSubstr("2 ranks do not share 3 of them evenly; give --expert-tensor-parallel-size 1"));
}

// Exports a plan, imports the file and exports the result. Both files must be the same, also for experts and their ranks.
TEST(ImportMegatronExperts, ExportsOfImportsAreTheSame) {
  PlanRequest request = SmallRequest(Bytes(0));
  request.target = PlanTarget::kAnyFramework;
  request.spec.data = {DataKind::kMegatron, "/data/x"};
  ModelSpec& model = request.spec.model;
  model.family = ModelFamily::kLlama;
  model.dropout = 0;
  model.moe = {.experts = 4, .top_k = 2, .ffn = 96, .capacity = 1.5, .z_loss = 0.001};
  request.spec.parallel = {.tp = 1, .pp = 2, .dp = 2, .ep = 2, .rank_order = RankOrder::kTpDpPp};
  request.spec.parallel.partition = PartitionMethod::kEven;
  request.spec.recompute = RecomputeMode::kFull;
  const auto exported = [](const PlanRequest& wanted) {
    const absl::StatusOr<PlanResult> plan = MakePlanFor(ExportFormat::kMegatron, wanted);
    EXPECT_TRUE(plan.ok() && std::holds_alternative<Plan>(*plan)) << plan.status();
    const auto files = ExportPlan(NewestTarget(ExportFormat::kMegatron), wanted, std::get<Plan>(*plan));
    EXPECT_TRUE(files.ok()) << files.status();
    const std::string& text = files->files.at(0).text;
    return text.substr(text.find("MEGATRON_ARGS=("));
  };
  const std::string first = exported(request);
  EXPECT_THAT(first, HasSubstr("--expert-model-parallel-size 2"));
  PlanRequest again = request;
  again.spec = Imported(absl::StrCat(first, "\ntorchrun --nproc-per-node 4 pretrain_gpt.py \"${MEGATRON_ARGS[@]}\"\n")).job;
  EXPECT_EQ(exported(again), first);
}

// Checks the names of the settings that an audit proposes.
TEST(ImportMegatronExperts, SettingsHaveItsNames) {
  const ImportedRun run = Imported(Experts("--expert-model-parallel-size 2"));
  StepRequest step{.model = run.job.model, .layout = PinnedLayout(run.job.parallel), .recompute = RecomputeMode::kSelective};
  step.modules = {RecomputeModule::kLayernorm, RecomputeModule::kMoeAct};
  const std::vector<RunSetting> settings = SettingsOf(Framework::kMegatron, step);
  EXPECT_THAT(settings, Contains(RunSetting{"--expert-model-parallel-size", "2"}));
  EXPECT_THAT(settings, Contains(RunSetting{"--expert-tensor-parallel-size", "1"}));
  EXPECT_THAT(settings, Contains(RunSetting{"--recompute-modules", "layernorm moe_act"}));
  EXPECT_THAT(SettingsOf(Framework::kLynx, step), Contains(RunSetting{"parallel.ep", "2"}));
  step.model.moe = {};
  step.layout.ep = 1;
  step.modules = {RecomputeModule::kMlp};
  EXPECT_THAT(SettingsOf(Framework::kMegatron, step), Contains(RunSetting{"--recompute-modules", "mlp"}));
  for (const RunSetting& setting : SettingsOf(Framework::kMegatron, step)) EXPECT_THAT(setting.name, Not(HasSubstr("expert")));
}

TEST(ImportMegatronExperts, RefusesExpertsThatAreNotPlanned) {
  EXPECT_THAT(ErrorOf(Small("--num-experts 8")),
              HasSubstr("--num-experts 8 without --swiglu: experts are planned as SwiGLU blocks"));
  for (const char* layers : {"2", "([1]*7+[0]*1)", "[1,0]*4", "([11]*8)", "8", "([1*8", "[0]*8", "[1]*-1", "[1]*99999999999"}) {
    EXPECT_THAT(ErrorOf(Experts(absl::StrCat("--moe-layer-freq '", layers, "'"))), HasSubstr("layers without experts between"))
        << layers;
  }
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Experts(""), {{"experts 8", "experts 1"}})),
              HasSubstr("--num-experts is 1: must be from 2"));
  EXPECT_THAT(ErrorOf(Experts("--moe-router-topk 0")), HasSubstr("--moe-router-topk is 0: must be from 1"));
  EXPECT_THAT(ErrorOf(Experts("--moe-router-topk 9")), HasSubstr("model.moe.topK is 9: must be from 1 to 8"));
  EXPECT_THAT(ErrorOf(Experts("--moe-aux-loss-coeff much")), HasSubstr("--moe-aux-loss-coeff is 'much': expected a number"));
  EXPECT_THAT(ErrorOf(Experts("--expert-model-parallel-size 4")),
              HasSubstr("must divide the 2 ranks of a stage (tp * cp * dp)"));
  EXPECT_THAT(ErrorOf(Experts("--tensor-model-parallel-size 2")),
              HasSubstr("--num-experts with --tensor-model-parallel-size 2 needs --sequence-parallel"));
  EXPECT_THAT(ErrorOf(Experts("--moe-latent-size 64")), HasSubstr("--moe-latent-size 64: experts of another hidden size"));
}

}  // namespace
}  // namespace lynx::cli
