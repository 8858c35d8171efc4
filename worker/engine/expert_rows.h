// ExpertRows counts, in each step, the rows that the experts of a rank receive, and those that the rank sends. The device
// counts, from the weights of rows that its ops need anyway; the counts are read together with the step's sums (DeviceSums), so
// the host waits for nothing more. Only forward actions count: recomputation repeats some of their ops and transfers, but no
// row counts twice.
//
// Not thread-safe: owned by the engine. Borrows the backend and the device memory of the counters.
#ifndef LYNX_WORKER_ENGINE_EXPERT_ROWS_H_
#define LYNX_WORKER_ENGINE_EXPERT_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "worker/backend/backend.h"
#include "worker/contract/rank_report.h"
#include "worker/engine/expert_rounds.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

class ExpertRows {
 public:
  // Returns the number of counters that a rank needs for this program; 0 if its layers have no experts.
  static int64_t CountersOf(const StageContext& context, const Program& program);

  // `counters`: CountersOf(context, program) counters in device memory. They must be 0 when a step begins.
  ExpertRows(const StageContext& context, const Program& program, int64_t* counters, Backend& backend);

  // Counts the rows of an op that a forward action has just run. Ops that make or read no rows count nothing.
  // `action`: its index in the program.
  void Count(int32_t action, Op op, const TensorTable& tensors);

  // Where the rounds of an action that runs unpermute count their rows. Null for recomputation.
  RoundCounters CountersOfRounds(int32_t action) const;

  // Returns what the counters say of a whole step. The fields that concern all ranks have this rank's values: its rows routed,
  // dropped and in rounds, and as `skew` the rows of its own experts. The numbers of rounds are 0, because the device does not
  // count them. All fields are 0 without experts. `counters`: in host memory.
  ExpertLoad LoadOf(std::span<const int64_t> counters);

 private:
  const RouterShape sent_;         // rows that the rank sends
  const ExpertShape held_;         // rows that its experts receive
  const bool exchanged_;           // other ranks hold experts too, so a rank's experts receive other rows than it sends
  const bool rounds_;              // rows without room go through rounds
  std::vector<int32_t> dispatch_;  // for each action, the number of its dispatch in a step; -1: it has none
  int64_t dispatches_ = 0;
  // Counters: the rows sent to rooms, then the rows received in each dispatch, then those of each expert.
  int64_t* const counters_;
  Backend& backend_;
  std::vector<int64_t> sorted_;  // one per expert; scratch memory of LoadOf
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_EXPERT_ROWS_H_
