#include "worker/engine/layer_ops.h"

#include <algorithm>

namespace lynx {

LayerOps::LayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, Backend& backend,
                   ModelState& state)
    : shape_(context.shape()),
      dropout_rate_(context.model.dropout),
      tp_rank_(tp_rank),
      seed_(seed),
      loss_scale_(loss_scale),
      backend_(backend),
      state_(state),
      b_(shape_.micro_batch),
      s_(shape_.seq),
      n_(shape_.tokens()),
      h_(shape_.hidden),
      sharded_(shape_.sequence_parallel),
      share_n_(shape_.shard_tokens()),
      first_token_(sharded_ ? tp_rank * share_n_ : 0),
      share_at_(first_token_ * h_),
      h_shard_(shape_.hidden / shape_.tp),
      f_shard_(shape_.ffn / shape_.tp),
      heads_(shape_.heads / shape_.tp),
      all_heads_(shape_.heads),
      head_size_(shape_.hidden / shape_.heads),
      v_shard_(shape_.vocab_shard()),
      v_valid_(std::clamp<int64_t>(shape_.vocab - v_shard_ * tp_rank, 0, v_shard_)),
      v_first_(static_cast<int32_t>(v_shard_ * tp_rank)) {}

void LayerOps::BeginStep(int64_t step) {
  step_ = step;
  loss_sum_ = 0;
}

DropoutKey LayerOps::KeyOf(Op op, int32_t layer, const MicrobatchInput& input) const {
  return {.rate = dropout_rate_,
          .seed = seed_,
          .step = step_,
          .layer = layer,
          .op = static_cast<int32_t>(op),
          .first_sample = input.first_sample,
          .first_token = op == Op::kContext ? 0 : first_token_};
}

}  // namespace lynx
