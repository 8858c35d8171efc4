// WorldSum exchanges the few numbers that all ranks add up at the end of a step: the squared gradient norm, the loss, the
// number of ranks that were asked to give way, the votes about in-memory checkpoints, and the load of experts.
//
// The ranks exchange the bytes of their numbers by an all-gather, and every rank adds them in the order of ranks. So the sums
// have full double precision and the same bits on every rank, and a NaN stays a NaN.
//
// The rank's compute thread owns it.
#ifndef LYNX_WORKER_ENGINE_WORLD_SUM_H_
#define LYNX_WORKER_ENGINE_WORLD_SUM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

struct StepSums {
  double squared_norm = 0;  // sum over all gradients, each parameter counted once
  double loss = 0;          // sum over all tokens of the global batch
  double yields = 0;        // number of ranks that were asked to give way
  // Numbers of ranks: those that are still busy with the last in-memory checkpoint, those whose part of that checkpoint failed,
  // and those that do not want a new one yet.
  double copies_busy = 0, copies_failed = 0, copies_unwanted = 0;
  // Rows of experts (ExpertLoad). expert_skew is no sum: on one rank the rows of its experts, as a multiple of the even share;
  // over all ranks the largest.
  double rows_routed = 0, rows_dropped = 0, expert_skew = 0;
  // rows_in_rounds: rows that went through rounds. rounds: in the values of one rank, the number of rounds of its expert group
  // if it is the group's first rank, otherwise 0. most_rounds is not summed: it is the largest number of rounds of one layer
  // and microbatch.
  double rows_in_rounds = 0, rounds = 0, most_rounds = 0;
};

// The votes of one rank, when a step ends, about in-memory checkpoints of its states. The type also holds the combined votes of
// all ranks.
struct CopyVotes {
  bool idle = true;     // the last in-memory checkpoint is finished
  bool whole = true;    // the last in-memory checkpoint succeeded
  bool wanted = false;  // the next in-memory checkpoint may begin after this step
};

class WorldSum {
 public:
  WorldSum(int32_t ranks, int32_t rank);

  absl::StatusOr<TransferTicket> Start(const StepSums& own, Communicator& communicator);
  // Returns the sums over all ranks. Call it after the transfer of Start has been waited for.
  StepSums Sums() const;
  // Returns the first rank with a value that is not finite, or -1 if all values are finite.
  int32_t FirstNotFinite() const;
  // Returns the rank whose experts have received the most rows as a multiple of the even share. If several ranks have the same
  // value, it is the first of them.
  int32_t FullestRank() const;

 private:
  StepSums Of(int32_t rank) const;

  const int32_t ranks_;
  const int32_t rank_;
  std::vector<float> slots_;  // (ranks, sizeof(StepSums) / sizeof(float)): bit patterns, never used as floats
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_WORLD_SUM_H_
