#include "worker/engine/step_batch.h"

#include "common/status.h"

namespace lynx {

StepBatch::StepBatch(const StageContext& context, int32_t dp_rank, const Dataset& dataset)
    : dataset_(dataset),
      needs_tokens_(context.has_embedding() || context.has_head()),
      micro_batch_(context.micro_batch),
      seq_(context.model.seq),
      samples_(int64_t{context.microbatches} * context.micro_batch),
      global_batch_(samples_ * context.layout.dp),
      first_sample_(samples_ * dp_rank),
      inputs_(needs_tokens_ ? samples_ * seq_ : 0),
      targets_(inputs_.size()) {}

absl::Status StepBatch::Load(int64_t step) {
  if (!needs_tokens_) return absl::OkStatus();
  for (int64_t i = 0; i < samples_; ++i) {
    LYNX_RETURN_IF_ERROR(
        dataset_.Read(step * global_batch_ + first_sample_ + i, &inputs_[i * seq_], &targets_[i * seq_]));
  }
  return absl::OkStatus();
}

MicrobatchInput StepBatch::Of(int32_t microbatch) const {
  const int64_t sample = int64_t{microbatch} * micro_batch_;
  MicrobatchInput input{.first_sample = first_sample_ + sample};
  if (needs_tokens_) {
    input.inputs = &inputs_[sample * seq_];
    input.targets = &targets_[sample * seq_];
  }
  return input;
}

}  // namespace lynx
