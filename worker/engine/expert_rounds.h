// ExpertRounds runs the rounds of a model that drops no rows of experts (planner/problem/expert_rounds.h): the rows that found
// no room in the main dispatch of a layer's microbatch are sent, computed and added in small parts, in the workspace of the op
// to which the rounds belong. A model without rounds needs no such object.
//
// The ranks of an expert group run the same program, so they begin their rounds in the same order. How many they need, they ask
// each other in the forward pass of each layer and microbatch. The host must know the number, so there, on a device with memory
// of its own, it waits for the device. Recomputation and the backward pass run the same rounds again, with the same rows.
//
// Not thread-safe: only the thread of the engine calls it. The backend, the communicator and the states must outlive the
// object, because it keeps references to them.
#ifndef LYNX_WORKER_ENGINE_EXPERT_ROUNDS_H_
#define LYNX_WORKER_ENGINE_EXPERT_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"
#include "worker/engine/layer_ops.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

// Where a forward pass counts the rows of its rounds; see Backend::CountRows. Null: it counts nothing.
struct RoundCounters {
  int64_t* by_expert = nullptr;
  int64_t* received = nullptr;
};

class ExpertRounds {
 public:
  // Returns null if no row can be without room. `rank`: in the world.
  static std::unique_ptr<ExpertRounds> Make(const StageContext& context, int32_t rank, Backend& backend,
                                            Communicator& communicator, ModelState& state);
  virtual ~ExpertRounds() = default;

  // Sets the counts to 0 at the beginning of a step.
  void BeginStep() { rounds_ = most_ = 0; }
  // rounds: the number of all rounds that this rank's expert group ran in forward actions since BeginStep. most_rounds: the
  // largest number of these rounds that one layer needed for one microbatch.
  int64_t rounds() const { return rounds_; }
  int64_t most_rounds() const { return most_; }
  // True on the first rank of each expert group, whose count of rounds is the group's.
  bool counts_for_group() const { return member_ == 0; }

  // Call it after unpermute, in a forward action or a recomputation: adds the results of the rows without room to the output.
  // Errors are those of the communicator.
  virtual absl::Status Forward(const Action& action, const TensorTable& tensors, const RoundCounters& counters) = 0;
  // Call it after the backward pass of permute, and before that of the router: adds to the gradients of ln2 and of the experts'
  // weights. Leaves the gradients of the rows' weights in the workspace.
  virtual absl::Status Backward(const Action& action, const TensorTable& tensors) = 0;

 protected:
  ExpertRounds(const StageContext& context, int32_t rank, Backend& backend, Communicator& communicator, ModelState& state);

  // The number of rounds of the action's layer and microbatch, which the group has agreed on.
  int32_t& KnownRounds(const Action& action);
  // Asks the other ranks of the group how many rounds are needed, and notes it. `counts`: ep words of device memory.
  absl::Status Agree(const Action& action, const RouteChoice* route, int32_t* counts);
  // Moves the rows of all experts between the ranks of the group: `columns` elements of each row.
  absl::Status Exchange(const Action& action, Elements send, Elements receive, int64_t columns);
  // Exchanges the rows as the function above does, and also their weights.
  absl::Status Exchange(const Action& action, Elements send, Elements receive, int64_t columns, float* send_weights,
                        float* receive_weights);

  const LayerShape shape_;
  const int64_t choices_;      // number of choices of all tokens of the rank
  const RouterShape router_;   // with the room of a round
  const ExpertShape experts_;  // with the room of a round
  const int32_t member_;       // this rank's number in its expert group
  const int32_t microbatches_;
  Backend& backend_;
  Communicator& communicator_;
  ModelState& state_;

 private:
  std::vector<int32_t> known_;   // indexed by layer and microbatch
  std::vector<int32_t> counts_;  // indexed by rank of the group; in host memory
  int64_t rounds_ = 0, most_ = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_EXPERT_ROUNDS_H_
