// StepBatch: the tokens of one step that a rank's replica trains on. Replica d takes the samples
// [d, d + 1) * global_batch / dp of the step's global batch, its microbatches in order; so the data of a step are the
// same for every layout.
//
// Allocates at construction only. Not thread-safe.
#ifndef LYNX_WORKER_ENGINE_STEP_BATCH_H_
#define LYNX_WORKER_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "planner/stage_context.h"
#include "worker/data/dataset.h"
#include "worker/engine/layer_ops.h"

namespace lynx {

class StepBatch {
 public:
  // A stage with neither embedding nor head needs no tokens and keeps none. `dataset` outlives this.
  StepBatch(const StageContext& context, int32_t dp_rank, const Dataset& dataset);

  // Reads the tokens of a step.
  absl::Status Load(int64_t step);
  // Valid until the next Load.
  MicrobatchInput Of(int32_t microbatch) const;

 private:
  const Dataset& dataset_;
  const bool needs_tokens_;
  const int32_t micro_batch_;
  const int64_t seq_;
  const int64_t samples_;  // of this replica in a step
  const int64_t global_batch_;
  const int64_t first_sample_;   // of this replica, within the global batch
  std::vector<int32_t> inputs_;  // (samples, seq)
  std::vector<int32_t> targets_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_STEP_BATCH_H_
