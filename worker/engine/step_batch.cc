#include "worker/engine/step_batch.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {

StepBatch::StepBatch(const StageContext& context, const BatchSplit& split, int32_t dp_rank, Backend& backend)
    : backend_(backend), needs_tokens_(context.has_embedding() || context.has_head()), micro_batch_(context.micro_batch),
      seq_(context.model.seq), global_batch_(split.global_batch), first_sample_(split.FirstSample(dp_rank)),
      samples_(split.FirstSample(dp_rank + 1) - first_sample_), places_(int64_t{context.microbatches} * context.micro_batch) {}

absl::StatusOr<StepBatch> StepBatch::Create(const StageContext& context, int32_t global_batch, int32_t dp_rank,
                                            Backend& backend) {
  const BatchSplit split{global_batch, context.layout.dp, context.micro_batch};
  LYNX_CHECK(split.microbatches() == context.microbatches);
  StepBatch batch(context, split, dp_rank, backend);
  if (!batch.needs_tokens_) return batch;
  LYNX_RETURN_IF_ERROR(batch.Place(batch.inputs_, "a step's tokens"));
  LYNX_RETURN_IF_ERROR(batch.Place(batch.targets_, "a step's target tokens"));
  std::fill(batch.targets_.host.begin() + batch.samples_ * batch.seq_, batch.targets_.host.end(), kNoTarget);
  return batch;
}

absl::Status StepBatch::Place(Tokens& tokens, const char* what) {
  static_assert(sizeof(int32_t) == sizeof(float));
  tokens.host.resize(static_cast<size_t>(places_ * seq_));
  tokens.device = tokens.host.data();
  if (backend_.host_addressable()) return absl::OkStatus();
  const Bytes bytes(static_cast<int64_t>(tokens.host.size() * sizeof(int32_t)));
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend_.Allocate(bytes, what));
  tokens.device = reinterpret_cast<int32_t*>(memory.data());
  return absl::OkStatus();
}

absl::Status StepBatch::Load(const Dataset& dataset, int64_t step) {
  if (!needs_tokens_) return absl::OkStatus();
  for (int64_t i = 0; i < samples_; ++i) {
    LYNX_RETURN_IF_ERROR(
        dataset.Read(step * global_batch_ + first_sample_ + i, &inputs_.host[i * seq_], &targets_.host[i * seq_]));
  }
  if (backend_.host_addressable()) return absl::OkStatus();
  for (const Tokens* tokens : {&inputs_, &targets_}) {
    backend_.Copy(tokens->host.data(), Bytes(static_cast<int64_t>(tokens->host.size() * sizeof(int32_t))), tokens->device);
  }
  return absl::OkStatus();
}

MicrobatchInput StepBatch::Of(int32_t microbatch) const {
  const int64_t sample = int64_t{microbatch} * micro_batch_;
  MicrobatchInput input{.first_sample = first_sample_ + sample};
  if (needs_tokens_) {
    input.inputs = inputs_.device + sample * seq_;
    input.targets = targets_.device + sample * seq_;
  }
  return input;
}

}  // namespace lynx::worker
