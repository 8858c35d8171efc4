#include "worker/engine/layer_ops.h"

#include <algorithm>

#include "common/check.h"

namespace lynx::worker {

LayerOps::LayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, double* loss_sum,
                   Backend& backend, ModelState& state)
    : shape_(context.shape()), biases_(shape_.family == ModelFamily::kGpt), qkv_bias_(shape_.has_qkv_bias()),
      epsilon_(static_cast<float>(context.model.norm_epsilon)), rotary_(RotaryTableOf(context.model)),
      heads_(shape_.qk_norm ? Tensor::kQkNormed : Tensor::kQkv), dropout_rate_(context.model.dropout), tp_rank_(tp_rank),
      seed_(seed), loss_scale_(loss_scale), loss_sum_(loss_sum), backend_(backend), state_(state), b_(shape_.micro_batch),
      s_(shape_.seq), n_(shape_.tokens()), h_(shape_.hidden), sharded_(shape_.sequence_parallel),
      share_n_(shape_.shard_tokens()), first_token_(sharded_ ? tp_rank * share_n_ : 0), share_at_(first_token_ * h_),
      context_width_(shape_.context_width()),
      qkv_width_(shape_.qkv_width()), attention_{.b = b_,
                                                 .s = s_,
                                                 .a = shape_.heads / shape_.tp,
                                                 .k = shape_.key_heads() / shape_.tp,
                                                 .d = shape_.head_size(),
                                                 .first_head = int64_t{shape_.heads / shape_.tp} * tp_rank,
                                                 .e = shape_.value_size(),
                                                 .factor = ScoreFactorOf(context.model.rotary)},
      latent_(shape_.latent() ? LatentShape{.n = n_,
                                            .h = h_,
                                            .p = shape_.query_rank,
                                            .r = shape_.kv_rank,
                                            .t = shape_.rotary_dims,
                                            .a = attention_.a,
                                            .d = attention_.d,
                                            .e = attention_.e}
                              : LatentShape{}),
      normed_heads_(shape_.qk_norm_whole ? AttentionShape{.b = b_, .s = s_, .a = 1, .k = 1, .d = context_width_} : attention_),
      kinds_(context), mlp_(shape_), dense_mlp_(DenseShape(shape_)),
      router_(mlp_.moe ? RouterShape{.n = share_n_,
                                     .h = h_,
                                     .experts = shape_.experts,
                                     .top_k = shape_.top_k,
                                     .room = shape_.expert_room(),
                                     .normalized = context.model.moe.normalized,
                                     .sigmoid = context.model.moe.scores == RouterScores::kSigmoid,
                                     .scale = static_cast<float>(context.model.moe.weight_scale)}
                       : RouterShape{}),
      // The router's losses are means over the tokens of a share. The step's loss is the mean over all shares, weighted by
      // tokens.
      router_losses_{.aux = context.model.moe.aux_loss,
                     .z = context.model.moe.z_loss,
                     .scale = loss_scale * static_cast<double>(share_n_)},
      shared_width_(shape_.shared_ffn), shared_gate_(shape_.shared_gate), router_bias_(context.model.moe.router_bias),
      experts_(mlp_.moe ? ExpertShape{.blocks = shape_.experts, .room = router_.room, .experts = shape_.own_experts()}
                        : ExpertShape{}),
      rounds_(mlp_.moe && shape_.round_room() > 0),
      sent_(shape_.ep > 1 ? RowTensors{Tensor::kRows, Tensor::kRowWeights, Tensor::kCombined, Tensor::kGradRows,
                                       Tensor::kGradRowWeights, Tensor::kGradCombined}
                          : RowTensors{Tensor::kExpertRows, Tensor::kExpertWeights, Tensor::kExpertOut, Tensor::kGradExpertRows,
                                       Tensor::kGradExpertWeights, Tensor::kGradExpertOut}),
      v_shard_(shape_.vocab_shard()), v_valid_(std::clamp<int64_t>(shape_.vocab - v_shard_ * tp_rank, 0, v_shard_)),
      v_first_(static_cast<int32_t>(v_shard_ * tp_rank)) {
  // One norm over all heads of a token needs all heads on this rank, and as many key heads as query heads. CheckEngineRuns
  // refuses other models.
  LYNX_CHECK(!shape_.qk_norm_whole || (shape_.tp == 1 && shape_.key_heads() == shape_.heads));
  LYNX_CHECK(!mlp_.moe || shape_.capacity_permille > 0);  // CheckEngineRuns refuses capacity 0
}

void LayerOps::BeginStep(int64_t step) {
  step_ = step;
  drops_ = true;
}

void LayerOps::BeginEvaluation() { drops_ = false; }

DropoutKey LayerOps::KeyOf(Op op, int32_t layer, const MicrobatchInput& input) const {
  // Fused and unfused attention draw the same dropout decisions, so both use the key of the context op.
  const bool attention = op == Op::kContext || op == Op::kFlash;
  return {.rate = drops_ ? dropout_rate_ : 0,
          .seed = seed_,
          .step = step_,
          .layer = layer,
          .op = static_cast<int32_t>(attention ? Op::kContext : op),
          .first_sample = input.first_sample,
          .first_token = attention ? 0 : first_token_};
}

std::unique_ptr<LayerOps> LayerOps::Make(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale,
                                         double* loss_sum, Backend& backend, ModelState& state) {
  if (context.model.dtype == DataType::kBfloat16) {
    return std::make_unique<TypedLayerOps<Bfloat16>>(context, tp_rank, seed, loss_scale, loss_sum, backend, backend.bfloat16(),
                                                     state);
  }
  return std::make_unique<TypedLayerOps<float>>(context, tp_rank, seed, loss_scale, loss_sum, backend, backend, state);
}

}  // namespace lynx::worker
