// Checks which features of a model each framework's export contains, and which features the export lists as missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "tests/planner/export/export_cases.h"

namespace lynx {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Case With(void (*change)(ModelSpec&)) { return Llama().Model(change); }

std::string Missing(const Case& one, const ExportTarget& target) { return absl::StrJoin(one.Export(target).missing, "\n"); }

TEST(ExportFeatures, MegatronHasPositionsAndNorms) {
  EXPECT_THAT(Arguments(Llama()), AllOf(Contains("--norm-epsilon 1e-05"), Contains("--rotary-base 10000")));
  const std::vector<std::string> llama3 = Arguments(With([](ModelSpec& m) {
    m.norm_epsilon = 1e-6;
    m.rotary = {.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 8192};
  }));
  EXPECT_THAT(llama3, AllOf(Contains("--norm-epsilon 1e-06"), Contains("--rotary-base 500000"), Contains("--use-rope-scaling"),
                            Contains("--rope-scaling-factor 8")));
  EXPECT_THAT(Arguments(With([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLinear, .factor = 4}; })),
              Contains("--rotary-seq-len-interpolation-factor 4"));
  EXPECT_THAT(Arguments(With([](ModelSpec& m) { m.qkv_bias = true; })), Contains("--add-qkv-bias"));
  EXPECT_THAT(Arguments(With([](ModelSpec& m) { m.qk_norm = true, m.head_dim = 128; })),
              AllOf(Contains("--qk-layernorm"), Contains("--kv-channels 128")));
  EXPECT_THAT(Arguments(With([](ModelSpec& m) { m.rotary.dims = m.head_size() / 2; })), Contains("--rotary-percent 0.5"));
  EXPECT_THAT(Arguments(Case()), Not(Contains(HasSubstr("--rotary"))));
}

TEST(ExportFeatures, GptMayHaveGroupedQueries) {
  const std::vector<std::string> arguments = Arguments(Case({.tp = 2}).Model([](ModelSpec& m) { m.kv_heads = 4; }));
  EXPECT_THAT(arguments, AllOf(Contains("--group-query-attention"), Contains("--num-query-groups 4"),
                               Contains("--position-embedding-type learned_absolute"), Not(Contains("--disable-bias-linear"))));
}

TEST(ExportFeatures, MegatronInterleavesAsManyMicrobatchesAsStages) {
  Case one({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved});
  one.plan.microbatches = 1;
  EXPECT_THAT(Missing(one, NewestTarget(ExportFormat::kMegatron)), HasSubstr("at least as many as stages"));
  one.plan.microbatches = 2;
  EXPECT_EQ(Missing(one, NewestTarget(ExportFormat::kMegatron)), "");
}

TEST(ExportFeatures, GroupsOfReplicasShardStates) {
  const Case one({.dp = 8, .zero = ZeroStage::kWeights, .zero_group = 2});
  const std::string torchtitan = one.Text(ExportFormat::kTorchtitan);
  EXPECT_THAT(torchtitan, AllOf(HasSubstr(" data_parallel_replicate_degree=4,"), HasSubstr(" data_parallel_shard_degree=2,")));
  EXPECT_THAT(Arguments(one), Contains("--num-distributed-optimizer-instances 4"));
  EXPECT_THAT(Arguments(Case({.dp = 8, .zero = ZeroStage::kWeights})), Not(Contains(HasSubstr("instances"))));
  EXPECT_THAT(Missing(one, NewestTarget(ExportFormat::kDeepSpeed)), HasSubstr("states sharded within groups of 2 replicas"));
}

TEST(ExportFeatures, MegatronListsWhatItsArgumentsLack) {
  const auto missing = [](void (*change)(ModelSpec&)) { return Missing(With(change), NewestTarget(ExportFormat::kMegatron)); };
  EXPECT_THAT(missing([](ModelSpec& m) { m.rotary.theta = 10000.5; }), HasSubstr("rotary base 10000.5"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 32}; }),
              HasSubstr("yarn scaling of rotary positions by 4"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 4096}; }),
              HasSubstr("llama3 scaling"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kDynamic, .factor = 2, .original_seq = 16}; }),
              HasSubstr("dynamic scaling"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kDynamic, .factor = 2, .original_seq = 32}; }),
              Not(HasSubstr("dynamic scaling")))
      << "it changes nothing within the original positions";
  EXPECT_THAT(missing([](ModelSpec& m) { m.window = 16; }), HasSubstr("attention within a window of 16 positions"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.window = 32; }), Not(HasSubstr("window")));
  EXPECT_THAT(missing([](ModelSpec& m) { m.plan_only = Bit(PlanOnlyFeature::kSoftCapping); }), HasSubstr("caps on scores"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.qk_norm = m.qk_norm_whole = true; }), HasSubstr("Megatron-LM norms each head"));
  EXPECT_THAT(missing([](ModelSpec& m) { m.matmul_type = MatmulType::kMxfp8; }),
              HasSubstr("products in mxfp8: add --fp8-format and --fp8-recipe mxfp8"));
  Case four = With([](ModelSpec& m) { m.matmul_type = MatmulType::kNvfp4; });
  EXPECT_THAT(Arguments(four), AllOf(Contains("--fp4-format e2m1"), Contains("--fp4-recipe nvfp4")));
}

void SumIn16Bits(ModelSpec& m) { m.dtype = m.gradient_dtype = DataType::kBfloat16; }

TEST(ExportFeatures, MegatronSumsGradientsIn16BitsIfThePlanDoes) {
  EXPECT_THAT(Arguments(With(SumIn16Bits)), AllOf(Contains("--bf16"), Contains("--grad-reduce-in-bf16")));
  EXPECT_THAT(Arguments(With([](ModelSpec& m) { m.dtype = DataType::kBfloat16; })), Not(Contains("--grad-reduce-in-bf16")));
}

TEST(ExportFeatures, TorchtitanReducesGradientsIn32BitsAlone) {
  EXPECT_THAT(Missing(With(SumIn16Bits), NewestTarget(ExportFormat::kTorchtitan)),
              HasSubstr("gradients reduced in bfloat16: mixed_precision_reduce takes float32 alone"));
}

TEST(ExportFeatures, MegatronHasExperts) {
  const std::vector<std::string> arguments = Arguments(Mixture());
  EXPECT_THAT(arguments,
              AllOf(Contains("--num-experts 8"), Contains("--moe-ffn-hidden-size 96"), Contains("--moe-router-topk 2"),
                    Contains("--moe-router-dtype fp32"), Contains("--moe-grouped-gemm"),
                    Contains("--moe-token-dispatcher-type alltoall"), Contains("--expert-model-parallel-size 4"),
                    Contains("--expert-tensor-parallel-size 1"), Contains("--sequence-parallel")));
  EXPECT_THAT(arguments, AllOf(Contains("--moe-expert-capacity-factor 1.25"), Contains("--moe-pad-expert-input-to-capacity"),
                               Contains("--moe-token-drop-policy position"), Contains("--moe-router-load-balancing-type none"),
                               Not(Contains("--moe-router-pre-softmax")), Not(Contains(HasSubstr("--moe-aux-loss-coeff"))),
                               Not(Contains(HasSubstr("--moe-z-loss-coeff")))));
  EXPECT_EQ(Missing(Mixture(), NewestTarget(ExportFormat::kMegatron)), "");
  EXPECT_THAT(Arguments(Llama()), Not(Contains(HasSubstr("expert"))));
  Case losses = Mixture().Model([](ModelSpec& m) {
    m.moe = {.experts = 8, .top_k = 2, .normalized = false, .capacity = 7, .aux_loss = 0.01, .z_loss = 0.001};
  });
  EXPECT_THAT(Arguments(losses),
              AllOf(Contains("--moe-router-pre-softmax"), Contains("--moe-aux-loss-coeff 0.01"),
                    Contains("--moe-router-load-balancing-type aux_loss"), Contains("--moe-z-loss-coeff 0.001"),
                    Contains("--moe-ffn-hidden-size 256"), Contains("--moe-expert-capacity-factor 4")));
  EXPECT_THAT(Missing(losses, NewestTarget(ExportFormat::kMegatron)), HasSubstr("a balancing loss of each rank's tokens"));
  losses.Model([](ModelSpec& m) { m.moe.dropless = true; });
  EXPECT_THAT(Arguments(losses), Not(Contains(HasSubstr("capacity"))));
  EXPECT_THAT(Missing(losses, NewestTarget(ExportFormat::kMegatron)), HasSubstr("rounds for rows of experts without room"));
  losses.Model([](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 1}; });
  EXPECT_THAT(Arguments(losses), AllOf(Contains("--moe-router-pre-softmax"), Not(Contains(HasSubstr("capacity")))));
  EXPECT_THAT(Missing(losses, NewestTarget(ExportFormat::kMegatron)), HasSubstr("a weight of 1 for a token's only expert"));
}

TEST(ExportFeatures, MegatronHasRoutersWithSigmoidsAndBiases) {
  const auto missing = [](const Case& one) { return Missing(one, NewestTarget(ExportFormat::kMegatron)); };
  Case glm = Mixture({.dp = 4, .ep = 4}).Model([](ModelSpec& m) {
    m.moe.scores = RouterScores::kSigmoid;
    m.moe.weight_scale = 2.5;
    m.moe.router_bias = true;
    m.moe.bias_rate = 0.001;
    m.moe.shared_ffn = 96;
    m.moe.shared_gate = true;
  });
  EXPECT_THAT(Arguments(glm),
              AllOf(Contains("--moe-router-score-function sigmoid"), Contains("--moe-router-topk-scaling-factor 2.5"),
                    Contains("--moe-router-enable-expert-bias"), Contains("--moe-router-bias-update-rate 0.001"),
                    Contains("--moe-shared-expert-gate"), Not(Contains("--moe-router-pre-softmax"))));
  EXPECT_EQ(missing(glm), "");
  glm.Model([](ModelSpec& m) { m.moe.normalized = false; });
  EXPECT_THAT(missing(glm), HasSubstr("sigmoids that are not divided by their sum, with 2 experts for each token"));
  Case scaled = Mixture().Model([](ModelSpec& m) { m.moe.weight_scale = 16; });
  EXPECT_THAT(missing(scaled), HasSubstr("weights of experts times 16"));
  scaled.Model([](ModelSpec& m) { m.moe.normalized = false; });
  EXPECT_THAT(Arguments(scaled), Contains("--moe-router-topk-scaling-factor 16"));
}

TEST(ExportFeatures, MegatronHasLatentAttentionAndSharedExperts) {
  const auto missing = [](const Case& one) { return Missing(one, NewestTarget(ExportFormat::kMegatron)); };
  EXPECT_THAT(Arguments(Deepseek()),
              AllOf(Contains("--multi-latent-attention"), Contains("--q-lora-rank 48"), Contains("--kv-lora-rank 32"),
                    Contains("--qk-head-dim 16"), Contains("--qk-pos-emb-head-dim 8"), Contains("--v-head-dim 16"),
                    Contains("--kv-channels 16"), Contains("--qk-layernorm"), Contains("--rope-type rope"),
                    Contains("--no-rope-fusion"), Not(Contains(HasSubstr("--rotary-percent")))));
  EXPECT_THAT(Arguments(Deepseek()), AllOf(Contains("--moe-shared-expert-intermediate-size 192"),
                                           Contains("--ffn-hidden-size 256"), Contains("--moe-layer-freq '([0]*1+[1]*3)'")));
  EXPECT_EQ(missing(Deepseek()), "");
  EXPECT_THAT(missing(Deepseek().Model([](ModelSpec& m) { m.norm_epsilon = 1e-5; })),
              HasSubstr("norms of latents with epsilon 1e-06: Megatron-LM's have --norm-epsilon 1e-05"));
  EXPECT_THAT(missing(Deepseek({.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true})),
              AllOf(HasSubstr("latents of all tokens on each tensor-parallel rank"),
                    HasSubstr("whole weights of what every token passes (width 192)")));
  Case other = Deepseek().Model([](ModelSpec& m) {
    m.latent.query_rank = 0;
    m.rotary = {.dims = 8, .scaling = RopeScaling::kYarn, .factor = 40, .original_seq = 4096};
    m.moe.shared_ffn = m.moe.dense_layers = 0;
  });
  EXPECT_THAT(Arguments(other), AllOf(Contains("--rope-type yarn"), Contains("--rotary-scaling-factor 4e+01"),
                                      Not(Contains(HasSubstr("--q-lora-rank"))), Not(Contains(HasSubstr("--moe-layer-freq"))),
                                      Not(Contains(HasSubstr("shared-expert"))), Not(Contains("--no-rope-fusion"))));
  EXPECT_EQ(missing(other), "");
  EXPECT_THAT(Arguments(other), Not(Contains(HasSubstr("--mscale"))));
  other.Model([](ModelSpec& m) { m.rotary.mscale_all_dim = 0.75, m.rotary.attention_factor = 1; });
  EXPECT_THAT(Arguments(other),
              AllOf(Contains("--rope-type yarn"), Contains("--mscale 0.75"), Contains("--mscale-all-dim 0.75")));
  EXPECT_EQ(missing(other), "");
  other.Model([](ModelSpec& m) { m.rotary.attention_factor = 0; });  // it is the quotient of other factors
  EXPECT_THAT(missing(other), HasSubstr("yarn scaling of rotary positions by 4e+01: with latent attention"));
  other.Model([](ModelSpec& m) { m.rotary.mscale_all_dim = 0, m.rotary.original_seq = 2048; });
  EXPECT_THAT(Arguments(other), Contains("--rope-type rope"));
  EXPECT_THAT(missing(other), HasSubstr("yarn scaling of rotary positions by 4e+01: with latent attention"));
}

// Megatron-LM numbers stages before replicas only if experts have as many replicas as the other layers.
TEST(ExportFeatures, MegatronOrdersRanksWithExperts) {
  const auto missing = [](const Case& one) { return Missing(one, NewestTarget(ExportFormat::kMegatron)); };
  const Case same = Mixture({.tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true});
  EXPECT_THAT(Arguments(same), Contains("--use-tp-pp-dp-mapping"));
  EXPECT_EQ(missing(same), "");
  const Case more = Mixture({.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sequence_parallel = true});
  EXPECT_THAT(Arguments(more), Not(Contains("--use-tp-pp-dp-mapping")));
  EXPECT_THAT(missing(more), HasSubstr("ranks in the order tp-pp-dp with experts on 4 ranks"));
  const Case replicas_first =
      Mixture({.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .rank_order = RankOrder::kTpDpPp});
  EXPECT_THAT(Arguments(replicas_first), Not(Contains("--use-tp-pp-dp-mapping")));
  EXPECT_EQ(missing(replicas_first), "");
}

TEST(ExportFeatures, OthersSayWhatTheirModelsWithExpertsTake) {
  EXPECT_THAT(
      Missing(Mixture(), NewestTarget(ExportFormat::kDeepSpeed)),
      AllOf(HasSubstr("8 experts of width 96, 2 for each token"),
            HasSubstr("MoE ep_size 4, num_experts 8, k 2 and capacity_factor 1.25"), Not(HasSubstr("losses of the router"))));
  const Case losses = Mixture().Model([](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 2, .aux_loss = 0.01}; });
  EXPECT_THAT(Missing(losses, NewestTarget(ExportFormat::kDeepSpeed)),
              AllOf(HasSubstr("k 2 and drop_tokens False"), HasSubstr("losses of the router (factors 0.01 and 0)")));
  const Case dropless = Mixture().Model([](ModelSpec& m) { m.moe.dropless = true; });
  EXPECT_THAT(Missing(dropless, NewestTarget(ExportFormat::kDeepSpeed)), HasSubstr("k 2 and drop_tokens False"));
  for (const ExportVersion& version : ExportVersions(ExportFormat::kTorchtitan)) {
    EXPECT_THAT(
        Missing(Mixture(), TargetOf(ExportFormat::kTorchtitan, version.name)),
        AllOf(HasSubstr("the model's experts (8 of width 96, 2 for each token) on 4 ranks: torchtitan's llama3 has none"),
              HasSubstr("expert_parallel_degree 4")));
  }
}

// Modules are not planned where only some layers have experts. So they are left out of the policies that may take the place of
// one that Megatron-LM lacks.
TEST(ExportFeatures, PoliciesAreReplacedWhereOnlySomeLayersHaveExperts) {
  Case mixed = Deepseek();
  mixed.Recompute(RecomputeMode::kBalanced);
  mixed.spec.train.global_batch = 64;
  mixed.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  const PlanRequest request{.spec = mixed.spec, .cluster = UniformCluster(1, 4, StatedCpuProfile(), Bytes(0))};
  const auto exported = ExportPlan(NewestTarget(ExportFormat::kMegatron), request, mixed.plan);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->files[0].text, Not(HasSubstr("--recompute")));
  EXPECT_THAT(absl::StrJoin(exported->missing, "\n"), HasSubstr("storing everything"));
}

TEST(ExportFeatures, OthersSayThatTheyHaveNoLatentAttentionAndSharedExperts) {
  EXPECT_THAT(Missing(Deepseek(), NewestTarget(ExportFormat::kDeepSpeed)),
              AllOf(HasSubstr("keys and values from 32 latents and queries from 48, values of 16"),
                    HasSubstr("a block of width 192 that every token passes"), HasSubstr("no experts in the first 1 layers")));
  for (const ExportVersion& version : ExportVersions(ExportFormat::kTorchtitan)) {
    EXPECT_THAT(Missing(Deepseek(), TargetOf(ExportFormat::kTorchtitan, version.name)),
                AllOf(HasSubstr("latent attention (keys and values from 32 latents): torchtitan's llama3 has none"),
                      HasSubstr("a block of width 192 that every token passes"),
                      HasSubstr("first 1 layers without experts, of feed-forward width 256")));
  }
}

TEST(ExportFeatures, TorchtitanHasPositionsAndNorms) {
  const Case llama3 = With([](ModelSpec& m) {
    m.norm_epsilon = 1e-6;
    m.rotary = {.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 8192};
  });
  const std::string module = llama3.Export(TargetOf(ExportFormat::kTorchtitan, "0.2.2")).files.back().text;
  EXPECT_THAT(module, AllOf(HasSubstr("norm_eps=1e-06,"), HasSubstr("rope_theta=5e+05,"), HasSubstr("scaling_factor=8,"),
                            HasSubstr("original_max_position_embeddings=8192,")));
  const std::string python = llama3.Text(ExportFormat::kTorchtitan);
  EXPECT_THAT(python, AllOf(HasSubstr("eps=1e-06,"), HasSubstr("theta=5e+05,"), HasSubstr("scaling=\"llama\",")));
  const std::string qwen3 = With([](ModelSpec& m) { m.qk_norm = true, m.head_dim = 128; }).Text(ExportFormat::kTorchtitan);
  EXPECT_THAT(qwen3, AllOf(HasSubstr("head_dim=128,"), HasSubstr("qk_norm=RMSNorm.Config(")));
}

TEST(ExportFeatures, TorchtitanListsWhatLlama3Lacks) {
  const auto missing = [](const char* version, void (*change)(ModelSpec&)) {
    return Missing(With(change), TargetOf(ExportFormat::kTorchtitan, version));
  };
  const std::string newest = ExportVersions(ExportFormat::kTorchtitan).back().name;
  for (const char* version : {"0.2.2", newest.c_str()}) {
    EXPECT_THAT(missing(version, [](ModelSpec& m) { m.qkv_bias = true; }),
                HasSubstr("biases of the query, key and value projections"));
    EXPECT_THAT(missing(version, [](ModelSpec& m) { m.rotary.dims = 4; }),
                HasSubstr("rotary positions of 4 elements of a head"));
    EXPECT_THAT(missing(version, [](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLinear, .factor = 4}; }),
                HasSubstr("linear scaling of rotary positions"));
    EXPECT_THAT(missing(version, [](ModelSpec& m) { m.window = 16; }), HasSubstr("a window of 16 positions"));
    EXPECT_THAT(missing(version, [](ModelSpec& m) { m.plan_only = Bit(PlanOnlyFeature::kPostNorms); }),
                HasSubstr("post-norms"));
  }
  EXPECT_THAT(missing("0.2.2", [](ModelSpec& m) { m.qk_norm = true, m.head_dim = 128; }),
              AllOf(HasSubstr("norms of queries and keys"), HasSubstr("heads of 128 elements")));
  EXPECT_THAT(missing(newest.c_str(), [](ModelSpec& m) { m.qk_norm = true, m.head_dim = 128; }),
              Not(HasSubstr("norms of queries")));
  EXPECT_THAT(missing(newest.c_str(), [](ModelSpec& m) { m.qk_norm = m.qk_norm_whole = true; }),
              HasSubstr("torchtitan norms each head"));
}

TEST(ExportFeatures, DeepSpeedNamesThemInWhatTheScriptBuilds) {
  EXPECT_THAT(
      Missing(With([](ModelSpec& m) { m.rotary.theta = 5e5, m.qkv_bias = true; }), NewestTarget(ExportFormat::kDeepSpeed)),
      HasSubstr("biases of queries, keys and values, rope theta 500000"));
}

TEST(ExportDeepSpeed, GradientsIn32BitsWhereTheVersionTakesThem) {
  const auto types = [](const char* version, ZeroStage zero) {
    const auto config =
        nlohmann::json::parse(Bfloat16({.dp = 2, .zero = zero}).Text(TargetOf(ExportFormat::kDeepSpeed, version)));
    return config.contains("data_types") ? config["data_types"]["grad_accum_dtype"].get<std::string>() : "";
  };
  for (const char* version : {"0.16", "0.17", "0.18", "0.19"}) {
    EXPECT_EQ(types(version, ZeroStage::kOptimizer), "fp32");
    EXPECT_EQ(types(version, ZeroStage::kWeights), "fp32");
  }
  EXPECT_EQ(types("0.16", ZeroStage::kNone), "fp32");
  EXPECT_EQ(types("0.17", ZeroStage::kNone), "fp32");
  EXPECT_EQ(types("0.18", ZeroStage::kNone), "");
  EXPECT_EQ(types("0.19", ZeroStage::kNone), "");
  EXPECT_FALSE(
      nlohmann::json::parse(WithZero(ZeroStage::kOptimizer).Text({ExportFormat::kDeepSpeed, 3})).contains("data_types"));
}

TEST(ExportDeepSpeed, GradientsIn16BitsIfThePlanHasThem) {
  const auto config = [](const char* version, ZeroStage zero) {
    Case one = Bfloat16({.dp = 2, .zero = zero});
    one.spec.model.gradient_dtype = one.plan.model.gradient_dtype = DataType::kBfloat16;
    EXPECT_THAT(one.Export(TargetOf(ExportFormat::kDeepSpeed, version)).missing,
                Not(Contains(HasSubstr("weight gradients in 32 bits"))));
    return nlohmann::json::parse(one.Text(TargetOf(ExportFormat::kDeepSpeed, version)));
  };
  EXPECT_EQ(config("0.17", ZeroStage::kNone)["data_types"]["grad_accum_dtype"], "bf16");
  EXPECT_EQ(config("0.19", ZeroStage::kOptimizer)["data_types"]["grad_accum_dtype"], "bf16");
  EXPECT_FALSE(config("0.19", ZeroStage::kNone).contains("data_types")) << "without ZeRO it sums them in bf16 anyway";
}

}  // namespace
}  // namespace lynx
