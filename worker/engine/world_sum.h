// WorldSum: the few doubles that all ranks add up at the end of a step (the squared gradient norm, the loss, how many ranks
// would have the run give way, and what they say of copies in memory).
//
// They travel as an all-gather of their bytes and every rank adds them in the order of ranks: so the sums are in full
// double precision, the same bits on every rank, and a not-a-number arrives as one.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_ENGINE_WORLD_SUM_H_
#define LYNX_WORKER_ENGINE_WORLD_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"

namespace lynx {

struct StepSums {
  double squared_norm = 0;  // of all gradients, each parameter once
  double loss = 0;          // over all tokens of the global batch
  double yields = 0;        // ranks that were asked to give way
  // Ranks that are still busy with the last copy in memory, whose part of it failed, and that want none yet.
  double copies_busy = 0, copies_failed = 0, copies_unwanted = 0;
};

// What a rank says of copies of its states in memory when a step ends; and what all of them said.
struct CopyVotes {
  bool idle = true;     // the last one is over
  bool whole = true;    // and it went well
  bool wanted = false;  // the next one may begin after this step
};

class WorldSum {
 public:
  WorldSum(int32_t ranks, int32_t rank);

  absl::StatusOr<TransferTicket> Start(const StepSums& own, Communicator& communicator);
  // After the wait.
  StepSums Sums() const;
  // After the wait: the first rank of which a part is not finite; -1 where all are.
  int32_t FirstNotFinite() const;

 private:
  StepSums Of(int32_t rank) const;

  const int32_t ranks_;
  const int32_t rank_;
  std::vector<float> slots_;  // (ranks, sizeof(StepSums) / sizeof(float)): bit patterns, never used as floats
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_WORLD_SUM_H_
