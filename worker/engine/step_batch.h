// StepBatch holds the tokens of one step on which a rank's replica trains: the replica's samples of the step's global batch
// (planner/problem/batch_split.h). Its first microbatch has the first of these samples, and so on. So a step has the same data
// in every layout. In the places of the last microbatch that have no sample, every target is kNoTarget.
//
// Allocates memory only at construction. Not thread-safe.
#ifndef LYNX_WORKER_ENGINE_STEP_BATCH_H_
#define LYNX_WORKER_ENGINE_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "planner/problem/batch_split.h"
#include "planner/problem/stage_context.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

class StepBatch {
 public:
  // Allocates memory of the backend if the device cannot read host memory. A stage without embedding and head needs no tokens
  // and stores none. `backend` must live longer than the result.
  // BatchSplit of `global_batch` must need the context's number of microbatches.
  static absl::StatusOr<StepBatch> Create(const StageContext& context, int32_t global_batch, int32_t dp_rank, Backend& backend);

  // Reads the tokens of a step from the data set.
  absl::Status Load(const Dataset& dataset, int64_t step);
  // Returns the tokens of a microbatch. They are valid until the next Load.
  MicrobatchInput Of(int32_t microbatch) const;

 private:
  // Tokens of shape (samples, seq) in host memory, and the address at which the device reads them.
  struct Tokens {
    std::vector<int32_t> host;
    int32_t* device = nullptr;
  };

  StepBatch(const StageContext& context, const BatchSplit& split, int32_t dp_rank, Backend& backend);
  absl::Status Place(Tokens& tokens, const char* what);

  Backend& backend_;
  const bool needs_tokens_;
  const int32_t micro_batch_;
  const int64_t seq_;
  const int64_t global_batch_;
  const int64_t first_sample_;  // the first sample of this replica, within the global batch
  const int64_t samples_;       // number of samples of this replica in a step
  const int64_t places_;        // number of samples for which its microbatches have room
  Tokens inputs_, targets_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_STEP_BATCH_H_
