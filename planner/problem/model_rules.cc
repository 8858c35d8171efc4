#include "planner/problem/model_rules.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "planner/problem/field_rules.h"

namespace lynx {
namespace {

// Upper limits. They are far above what the planner is made for, and far below the values with which arithmetic could overflow.
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxFfn = 1 << 20;
constexpr int64_t kMaxSeq = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;

// Returns an error if a field that applies only to another kind of scaling does not have its default: a user's value must never
// be ignored without a message.
absl::Status ValidateRopeScaling(const RotarySpec& rotary) {
  const RotarySpec plain;
  const RopeScaling scaling = rotary.scaling;
  const auto only = [&](const char* field, bool has, double value, double otherwise) {
    if (has || value == otherwise) return absl::OkStatus();
    return Bad(field, value, absl::StrCat("means nothing with model.rope.scaling ", EnumName(scaling), "; leave it out"));
  };
  const bool llama3 = scaling == RopeScaling::kLlama3, yarn = scaling == RopeScaling::kYarn;
  const bool from_original = llama3 || yarn || scaling == RopeScaling::kDynamic;
  LYNX_RETURN_IF_ERROR(only("model.rope.factor", scaling != RopeScaling::kNone, rotary.factor, plain.factor));
  LYNX_RETURN_IF_ERROR(only("model.rope.originalSeq", from_original, rotary.original_seq, plain.original_seq));
  LYNX_RETURN_IF_ERROR(only("model.rope.lowFreqFactor", llama3, rotary.low_freq_factor, plain.low_freq_factor));
  LYNX_RETURN_IF_ERROR(only("model.rope.highFreqFactor", llama3, rotary.high_freq_factor, plain.high_freq_factor));
  LYNX_RETURN_IF_ERROR(only("model.rope.betaFast", yarn, rotary.beta_fast, plain.beta_fast));
  LYNX_RETURN_IF_ERROR(only("model.rope.betaSlow", yarn, rotary.beta_slow, plain.beta_slow));
  LYNX_RETURN_IF_ERROR(only("model.rope.attentionFactor", yarn, rotary.attention_factor, plain.attention_factor));
  LYNX_RETURN_IF_ERROR(only("model.rope.mscaleAllDim", yarn, rotary.mscale_all_dim, plain.mscale_all_dim));
  LYNX_RETURN_IF_ERROR(InRealRange("model.rope.mscaleAllDim", rotary.mscale_all_dim, 0, 1e3, "must be from 0 (none) to 1e3"));
  LYNX_RETURN_IF_ERROR(InRealRange("model.rope.factor", rotary.factor, 1, 1e6, "must be from 1 to 1e6"));
  LYNX_RETURN_IF_ERROR(InRange("model.rope.originalSeq", rotary.original_seq, from_original ? 1 : 0, kMaxSeq));
  LYNX_RETURN_IF_ERROR(Positive("model.rope.lowFreqFactor", rotary.low_freq_factor));
  if (!(rotary.high_freq_factor > rotary.low_freq_factor) || !std::isfinite(rotary.high_freq_factor)) {
    return Bad("model.rope.highFreqFactor", rotary.high_freq_factor,
               absl::StrCat("must be above model.rope.lowFreqFactor, which is ", rotary.low_freq_factor));
  }
  LYNX_RETURN_IF_ERROR(Positive("model.rope.betaSlow", rotary.beta_slow));
  if (!(rotary.beta_fast > rotary.beta_slow) || !std::isfinite(rotary.beta_fast)) {
    return Bad("model.rope.betaFast", rotary.beta_fast,
               absl::StrCat("must be above model.rope.betaSlow, which is ", rotary.beta_slow));
  }
  return InRealRange("model.rope.attentionFactor", rotary.attention_factor, 0, 1e6,
                     "must be from 0 (as the scaling says) to 1e6");
}

absl::Status ValidateRotary(const ModelSpec& model) {
  const RotarySpec& rotary = model.rotary;
  const int32_t head = model.head_size();
  if (!(rotary.theta > 1) || !std::isfinite(rotary.theta))
    return Bad("model.rope.theta", rotary.theta, "must be a number above 1");
  LYNX_RETURN_IF_ERROR(InRange("model.rope.dims", rotary.dims, 0, head));
  if (rotary.dims % 2 != 0) {
    return Bad("model.rope.dims", rotary.dims, "must be even: rotary positions turn pairs of a head's elements");
  }
  if (rotary.dims == 0 && head % 2 != 0) {
    const char* const field = model.head_dim == 0 ? "model.hidden" : "model.headDim";
    const std::string rule = model.head_dim == 0 ? absl::StrCat("an even multiple of model.heads (", model.heads, ")") : "even";
    return Bad(field, model.head_dim == 0 ? model.hidden : model.head_dim,
               absl::StrCat("must be ", rule, " for model.family llama: its rotary positions turn pairs of a head's elements"));
  }
  return ValidateRopeScaling(rotary);
}

// Checks the fields that apply to only one family.
absl::Status ValidateFamily(const ModelSpec& model) {
  if (model.qk_norm_whole && !model.qk_norm) {
    return Bad("model.qkNormWhole", "true", "needs model.qkNorm true, the norms that it widens");
  }
  if (model.family == ModelFamily::kLlama) {
    if (model.dropout != 0)
      return Bad("model.dropout", model.dropout, "must be 0 for model.family llama, which has no dropout");
    return ValidateRotary(model);
  }
  if (model.qkv_bias) return Bad("model.qkvBias", "true", "is for model.family llama; gpt has biases everywhere");
  if (model.qk_norm) return Bad("model.qkNorm", "true", "is for model.family llama");
  if (model.window != 0) return Bad("model.window", model.window, "is for model.family llama; leave it out for gpt");
  if (!(model.rotary == RotarySpec())) {
    return absl::InvalidArgumentError("model.rope is for model.family llama, which has rotary positions; leave it out for gpt");
  }
  return absl::OkStatus();
}

absl::Status ValidateRouter(const MoeSpec& moe) {
  LYNX_RETURN_IF_ERROR(Positive("model.moe.weightScale", moe.weight_scale));
  LYNX_RETURN_IF_ERROR(InRealRange("model.moe.weightScale", moe.weight_scale, 1e-6, 1e6, "must be from 1e-6 to 1e6"));
  if (moe.router_bias && moe.scores != RouterScores::kSigmoid) {
    return Bad("model.moe.routerBias", "true", "needs model.moe.scores sigmoid: the bias is added to scores between 0 and 1");
  }
  LYNX_RETURN_IF_ERROR(InRealRange("model.moe.biasRate", moe.bias_rate, 0, 1, "must be from 0 (the biases stay) to 1"));
  if (moe.router_bias || moe.bias_rate == 0) return absl::OkStatus();
  return Bad("model.moe.biasRate", moe.bias_rate, "means nothing without model.moe.routerBias: give both or leave it out");
}

absl::Status ValidateMoe(const ModelSpec& model) {
  const MoeSpec& moe = model.moe;
  LYNX_RETURN_IF_ERROR(InRange("model.moe.experts", moe.experts, 0, kMaxExperts));
  if (!moe.any()) {
    if (moe == MoeSpec()) return absl::OkStatus();
    return absl::InvalidArgumentError("model.moe says how experts work, but the model has none: give model.moe.experts");
  }
  if (model.family != ModelFamily::kLlama) {
    return Bad("model.moe.experts", moe.experts, "is for model.family llama: experts are SwiGLU blocks");
  }
  LYNX_RETURN_IF_ERROR(InRange("model.moe.experts", moe.experts, 2, kMaxExperts));
  LYNX_RETURN_IF_ERROR(InRange("model.moe.topK", moe.top_k, 1, moe.experts));
  LYNX_RETURN_IF_ERROR(InRange("model.moe.ffn", moe.ffn, 0, kMaxFfn));
  if (moe.capacity != 0) {
    LYNX_RETURN_IF_ERROR(InRealRange("model.moe.capacity", moe.capacity, 0.001, moe.experts,
                                     "must be 0 (no limit), or from 0.001 to model.moe.experts"));
  }
  if (moe.dropless && moe.capacity == 0) {
    return Bad("model.moe.dropless", "true, but model.moe.capacity is 0",
               "give model.moe.capacity, the size of the rooms (1: the even share); rows beyond it go through rounds");
  }
  LYNX_RETURN_IF_ERROR(
      InRealRange("model.moe.skew", moe.skew, 1, moe.experts, "must be from 1 (an even load) to model.moe.experts"));
  LYNX_RETURN_IF_ERROR(InRealRange("model.moe.auxLoss", moe.aux_loss, 0, 1e6, "must be from 0 to 1e6"));
  LYNX_RETURN_IF_ERROR(InRealRange("model.moe.zLoss", moe.z_loss, 0, 1e6, "must be from 0 to 1e6"));
  LYNX_RETURN_IF_ERROR(ValidateRouter(moe));
  LYNX_RETURN_IF_ERROR(InRange("model.moe.sharedFfn", moe.shared_ffn, 0, kMaxFfn));
  if (moe.shared_gate && moe.shared_ffn == 0) {
    return Bad("model.moe.sharedGate", "true", "needs model.moe.sharedFfn, the width of the block that it opens");
  }
  LYNX_RETURN_IF_ERROR(InRange("model.moe.denseLayers", moe.dense_layers, 0, model.layers - 1));
  if (model.matmul_type == MatmulType::kModel || (moe.shared_ffn == 0 && moe.dense_layers == 0)) return absl::OkStatus();
  return Bad("model.matmulType", EnumName(model.matmul_type),
             "cannot be planned for models with model.moe.sharedFfn or model.moe.denseLayers: leave it out");
}

absl::Status ValidateLatent(const ModelSpec& model) {
  const LatentSpec& latent = model.latent;
  LYNX_RETURN_IF_ERROR(InRange("model.latent.kvRank", latent.kv_rank, 0, kMaxHidden));
  if (!latent.any()) {
    if (model.rotary.mscale_all_dim != 0) {
      return Bad("model.rope.mscaleAllDim", model.rotary.mscale_all_dim, "is for latent attention; leave it out");
    }
    if (latent == LatentSpec()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "model.latent says how latent attention works, but the model has none: give model.latent.kvRank");
  }
  if (model.family != ModelFamily::kLlama) {
    return Bad("model.latent.kvRank", latent.kv_rank, "is for model.family llama: latent attention has rotary positions");
  }
  LYNX_RETURN_IF_ERROR(InRange("model.latent.queryRank", latent.query_rank, 0, kMaxHidden));
  LYNX_RETURN_IF_ERROR(InRange("model.latent.valueDim", latent.value_dim, 1, kMaxHidden));
  LYNX_RETURN_IF_ERROR(InRange("model.rope.dims", model.rotary.dims, 2, model.head_size()));
  if (model.key_heads() != model.heads) {
    return Bad("model.kvHeads", model.key_heads(), "must be model.heads: with latent attention, every head has its own keys");
  }
  if (model.qk_norm) return Bad("model.qkNorm", "true", "cannot be planned with latent attention, which norms the latents");
  if (model.qkv_bias) return Bad("model.qkvBias", "true", "cannot be planned with latent attention");
  if (model.attention != AttentionKernel::kFused) {
    return Bad("model.attention", EnumName(model.attention), "must be fused with latent attention");
  }
  if (model.matmul_type == MatmulType::kModel) return absl::OkStatus();
  return Bad("model.matmulType", EnumName(model.matmul_type), "cannot be planned with latent attention: leave it out");
}

absl::Status ValidateMatmulType(const ModelSpec& model) {
  if (model.matmul_type == MatmulType::kModel) return absl::OkStatus();
  const char* const type = EnumName(model.matmul_type);
  if (model.dtype != DataType::kBfloat16) {
    return Bad("model.matmulType", type, "needs model.dtype bfloat16, the type of all that is not such a product");
  }
  if (model.attention == AttentionKernel::kFused) return absl::OkStatus();
  return Bad("model.matmulType", type, "needs model.attention fused: such products are not planned beside unfused attention");
}

absl::Status ValidateGradientType(const ModelSpec& model) {
  if (model.gradient_dtype == DataType::kFloat32 || model.dtype == DataType::kBfloat16) return absl::OkStatus();
  return Bad("model.gradientDtype", EnumName(model.gradient_dtype),
             "needs model.dtype bfloat16: gradients have at least the bits of the weights");
}

}  // namespace

absl::Status ValidateModel(const ModelSpec& model) {
  LYNX_RETURN_IF_ERROR(InRange("model.layers", model.layers, 1, kMaxLayers));
  LYNX_RETURN_IF_ERROR(InRange("model.hidden", model.hidden, 1, kMaxHidden));
  LYNX_RETURN_IF_ERROR(InRange("model.heads", model.heads, 1, kMaxHeads));
  LYNX_RETURN_IF_ERROR(InRange("model.headDim", model.head_dim, 0, kMaxHeadDim));
  if (model.head_dim == 0) LYNX_RETURN_IF_ERROR(Divides("model.hidden", model.hidden, "model.heads", model.heads));
  LYNX_RETURN_IF_ERROR(InRange("model.ffn", model.ffn, 1, kMaxFfn));
  LYNX_RETURN_IF_ERROR(InRange("model.seq", model.seq, 1, kMaxSeq));
  LYNX_RETURN_IF_ERROR(InRange("model.vocab", model.vocab, 2, kMaxVocab));
  LYNX_RETURN_IF_ERROR(InRange("model.window", model.window, 0, kMaxSeq));
  if (!(model.dropout >= 0 && model.dropout < 1)) {
    return Bad("model.dropout", model.dropout, "must be at least 0 and below 1");
  }
  if (!(model.norm_epsilon > 0 && model.norm_epsilon < 1)) {
    return Bad("model.normEpsilon", model.norm_epsilon, "must be above 0 and below 1");
  }
  LYNX_RETURN_IF_ERROR(InRange("model.kvHeads", model.kv_heads, 0, model.heads));
  if (model.heads % model.key_heads() != 0) {
    return Bad("model.kvHeads", model.kv_heads, absl::StrCat("must divide model.heads, which is ", model.heads));
  }
  LYNX_RETURN_IF_ERROR(ValidateMatmulType(model));
  LYNX_RETURN_IF_ERROR(ValidateGradientType(model));
  LYNX_RETURN_IF_ERROR(ValidateMoe(model));
  LYNX_RETURN_IF_ERROR(ValidateLatent(model));
  if (model.plan_only >> kPlanOnlyFeatureCount != 0) {
    return Bad("model.planOnly", model.plan_only, "has features that this version does not know");
  }
  if (model.family != ModelFamily::kGpt && (model.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0) {
    return Bad("model.planOnly", "encoder", "is for model.family gpt: encoders have LayerNorm, GELU and learned positions");
  }
  return ValidateFamily(model);
}

}  // namespace lynx
