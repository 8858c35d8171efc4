// WorldSum: the few doubles that all ranks add up at the end of a step: the squared gradient norm, the loss, how many ranks
// want the run to give way, and their votes about in-memory checkpoints.
//
// The ranks exchange them as an all-gather of their bytes, and every rank adds them in the order of ranks. So the sums have
// full double precision and the same bits on every rank, and a NaN arrives as a NaN.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_ENGINE_WORLD_SUM_H_
#define LYNX_WORKER_ENGINE_WORLD_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

struct StepSums {
  double squared_norm = 0;  // of all gradients, each parameter once
  double loss = 0;          // over all tokens of the global batch
  double yields = 0;        // ranks that were asked to give way
  // Counts of ranks: those that are still busy with the last in-memory checkpoint, those whose part of it failed, and those
  // that want none yet.
  double copies_busy = 0, copies_failed = 0, copies_unwanted = 0;
};

// The votes of one rank about in-memory checkpoints of its states, cast when a step ends. Also the combined votes of all ranks.
struct CopyVotes {
  bool idle = true;     // the last in-memory checkpoint is finished
  bool whole = true;    // the last in-memory checkpoint succeeded
  bool wanted = false;  // the next one may begin after this step
};

class WorldSum {
 public:
  WorldSum(int32_t ranks, int32_t rank);

  absl::StatusOr<TransferTicket> Start(const StepSums& own, Communicator& communicator);
  // The sums over all ranks. Call it after the wait.
  StepSums Sums() const;
  // The first rank with a value that is not finite; -1 if all are finite.
  int32_t FirstNotFinite() const;

 private:
  StepSums Of(int32_t rank) const;

  const int32_t ranks_;
  const int32_t rank_;
  std::vector<float> slots_;  // (ranks, sizeof(StepSums) / sizeof(float)): bit patterns, never used as floats
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_WORLD_SUM_H_
