// Tests the import of latent attention, of shared experts and of first layers without experts in runs of Megatron-LM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/cli/frameworks/megatron_runs.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A small Llama on two replicas with latent attention.
std::string Latent(const std::string& arguments) {
  return SmallLlama(absl::StrCat("--multi-latent-attention --qk-layernorm ", arguments));
}
std::string Experts(const std::string& arguments) {
  return SmallLlama(absl::StrCat("--num-experts 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall ", arguments));
}

TEST(ImportMegatronLatent, ReadsLatentAttention) {
  const ImportedRun plain = Imported(Latent("--kv-channels 16"));
  EXPECT_EQ(plain.job.model.latent, (LatentSpec{.query_rank = 0, .kv_rank = 32, .value_dim = 128}))
      << "the defaults of the flags";
  EXPECT_EQ(plain.job.model.head_size(), 128 + 64) << "--kv-channels has no effect";
  EXPECT_EQ(plain.job.model.rotary, (RotarySpec{.dims = 64}));
  EXPECT_FALSE(plain.job.model.qk_norm);
  EXPECT_EQ(plain.job.model.plan_only, PlanOnlyFeatures{0});
  EXPECT_THAT(plain.not_taken, IsEmpty());
  const ImportedRun run = Imported(
      Latent("--q-lora-rank 96 --kv-lora-rank 48 --qk-head-dim 40 --qk-pos-emb-head-dim 24 --v-head-dim 20 --rope-type "
             "rope --no-rope-fusion --rotary-base 50000"));
  EXPECT_EQ(run.job.model.latent, (LatentSpec{.query_rank = 96, .kv_rank = 48, .value_dim = 20}));
  EXPECT_EQ(run.job.model.head_size(), 64);
  EXPECT_EQ(run.job.model.rotary, (RotarySpec{.theta = 50000, .dims = 24}));
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(run.unknown, IsEmpty());
}

TEST(ImportMegatronLatent, PositionsAreYarns) {
  const RotarySpec yarn{.dims = 64, .scaling = RopeScaling::kYarn, .factor = 40, .original_seq = 4096};
  EXPECT_EQ(Imported(Latent("--rotary-scaling-factor 40")).job.model.rotary, yarn);
  EXPECT_EQ(Imported(Latent("--rotary-scaling-factor 40 --rope-type rope")).job.model.rotary, (RotarySpec{.dims = 64}));
  const ModelSpec deepseek = Imported(Latent("--rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 1.0")).job.model;
  EXPECT_DOUBLE_EQ(deepseek.rotary.attention_factor, 1);
  EXPECT_EQ(deepseek.rotary.mscale_all_dim, 1);
  EXPECT_EQ(deepseek.plan_only, PlanOnlyFeatures{0});
  const ModelSpec half = Imported(Latent("--rotary-scaling-factor 40 --mscale 0.5")).job.model;
  EXPECT_DOUBLE_EQ(half.rotary.attention_factor, 0.05 * std::log(40.0) + 1);
  EXPECT_EQ(half.plan_only, PlanOnlyFeatures{0});
}

TEST(ImportMegatronLatent, SaysWhatHasNoCounterpart) {
  const struct {
    std::string run;
    const char* said;
  } cases[] = {
      {SmallLlama("--multi-latent-attention"), "no --qk-layernorm: latent attention is planned with norms"},
      {Latent("--add-qkv-bias"), "--add-qkv-bias: latent attention is planned without biases"},
      {Latent("--fp4-format e2m1"), "--fp4-format: the products of models with latent attention are planned in 16 bits"},
      {Latent("--fp8-format hybrid"), "--fp8-format: the products of models with latent attention are planned in 16 bits"},
      {Latent("--rope-type rope --rotary-percent 0.5"), "--rotary-percent 0.5: planned with all of --qk-pos-emb-head-dim 64"},
      {Latent("--tensor-model-parallel-size 2 --sequence-parallel"), "the plan counts the latents of all tokens"},
      {SmallLlama("--kv-lora-rank 64"), "--kv-lora-rank 64: there is no --multi-latent-attention"},
      {SmallLlama("--rope-type yarn"), "--rope-type yarn: there is no --multi-latent-attention"},
      {Experts("--moe-shared-expert-intermediate-size 64 --moe-shared-expert-overlap"),
       "--moe-shared-expert-overlap: the plan runs what every token passes one after the other"},
      {Experts("--moe-shared-expert-intermediate-size 64 --tensor-model-parallel-size 2 --sequence-parallel "
               "--expert-tensor-parallel-size 1"),
       "--moe-shared-expert-intermediate-size 64: planned with whole weights on each of the 2 tensor-parallel ranks"},
  };
  for (const auto& c : cases) EXPECT_THAT(Imported(c.run).not_taken, Contains(HasSubstr(c.said))) << c.run;
}

TEST(ImportMegatronLatent, RefusesWhatIsNotPlanned) {
  EXPECT_THAT(ErrorOf(Small("--multi-latent-attention")), HasSubstr("--multi-latent-attention without --swiglu"));
  EXPECT_THAT(ErrorOf(Latent("--group-query-attention --num-query-groups 4")), HasSubstr("Megatron-LM refuses both together"));
  EXPECT_THAT(ErrorOf(Latent("--kv-lora-rank 0")), HasSubstr("--kv-lora-rank is 0: must be from 1"));
  EXPECT_THAT(ErrorOf(Latent("--rope-type learned")), HasSubstr("--rope-type is 'learned': expected rope or yarn"));
  EXPECT_THAT(ErrorOf(Latent("--attention-backend unfused")), HasSubstr("model.attention is unfused: must be fused"));
}

TEST(ImportMegatronLatent, ReadsSharedExpertsAndFirstLayers) {
  const ImportedRun run = Imported(Experts("--moe-shared-expert-intermediate-size 96 --moe-layer-freq '([0]*3+[1]*5)'"));
  EXPECT_EQ(run.job.model.moe, (MoeSpec{.experts = 8, .top_k = 2, .shared_ffn = 96, .dense_layers = 3}));
  EXPECT_THAT(run.not_taken, IsEmpty());
  const auto dense = [](const std::string& layers) {
    return Imported(Experts(absl::StrCat("--moe-layer-freq '", layers, "'"))).job.model.moe.dense_layers;
  };
  EXPECT_EQ(dense("[0,1,1,1,1,1,1,1]"), 1);
  EXPECT_EQ(dense("[0] * 2 + [1] * 6"), 2);
  EXPECT_EQ(dense("[0,0]+[1,1]*3"), 2);
  EXPECT_EQ(dense("([0]*0+[1]*8)"), 0);
  EXPECT_EQ(dense("1"), 0);
  EXPECT_THAT(ErrorOf(Experts("--moe-layer-freq '[0]*1+[1]*6'")), HasSubstr("says 7 layers, and --num-layers 8"));
  EXPECT_THAT(ErrorOf(Experts("--moe-shared-expert-intermediate-size 0")), HasSubstr("is 0: must be from 1"));
  EXPECT_EQ(Imported(Experts("--moe-shared-expert-intermediate-size 96 --moe-shared-expert-gate")).job.model.moe.shared_gate,
            true);
}

}  // namespace
}  // namespace lynx::cli
