// StepBatch: the tokens of one step that a rank's replica trains on. Replica d takes the samples [d, d + 1) * global_batch / dp
// of the step's global batch, and its microbatches are in that order. So the data of a step are the same for every layout.
//
// Allocates only at construction. Not thread-safe.
#ifndef LYNX_WORKER_ENGINE_STEP_BATCH_H_
#define LYNX_WORKER_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

class StepBatch {
 public:
  // Allocates memory of the backend where the device cannot read host memory. A stage with neither embedding nor head needs no
  // tokens and stores none. `backend` outlives the result.
  static absl::StatusOr<StepBatch> Create(const StageContext& context, int32_t dp_rank, Backend& backend);

  // Reads the tokens of a step.
  absl::Status Load(const Dataset& dataset, int64_t step);
  // Valid until the next Load.
  MicrobatchInput Of(int32_t microbatch) const;

 private:
  // Tokens (samples, seq) on the host, and their address for the device.
  struct Tokens {
    std::vector<int32_t> host;
    int32_t* device = nullptr;
  };

  StepBatch(const StageContext& context, int32_t dp_rank, Backend& backend);
  absl::Status Place(Tokens& tokens, const char* what);

  Backend& backend_;
  const bool needs_tokens_;
  const int32_t micro_batch_;
  const int64_t seq_;
  const int64_t samples_;  // of this replica in a step
  const int64_t global_batch_;
  const int64_t first_sample_;  // of this replica, within the global batch
  Tokens inputs_, targets_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_STEP_BATCH_H_
