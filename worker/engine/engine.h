// Engine: the interpreter of a rank's program. One loop walks the actions, and one switch runs each of them: compute actions
// call the backend for the listed ops, starts hand a transfer to the communicator, and waits block the loop until the transfer
// is done. The engine decides nothing: only the order of the actions says what is stored, recomputed or overlapped.
//
// All activations are in one arena of exactly the planned bytes. The engine measures how much of the arena is really used, and
// checks that nothing is written beyond it. Offloaded tensors wait in a host pool of the planned bytes; copies to and from it
// run at the same time as the ops (host_copies.h). Nothing is allocated within a step.
//
// On a device with memory of its own, the host runs ahead: it issues a step's ops and transfers, and marks define their order
// (common/moment.h). It waits for the device in only three places: at the beginning of the step, where the step's sums (loss
// and gradient norm) are needed, and at the end of the step. There it reads the times of the actions from the marks. It
// inspects dead buffers only in the first step. A model whose rows of experts go through rounds is an exception: there the host
// also waits in each layer (expert_rounds.h).
//
// Not thread-safe: owned by the rank's compute thread. Borrows the backend, communicator, states and data set, which outlive
// it.
#ifndef LYNX_WORKER_ENGINE_ENGINE_H_
#define LYNX_WORKER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "planner/cost/simulate.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/host_layout.h"
#include "planner/program/memory_model.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"
#include "worker/contract/rank_report.h"
#include "worker/data/dataset.h"
#include "worker/engine/arena_watch.h"
#include "worker/engine/device_sums.h"
#include "worker/engine/expert_rounds.h"
#include "worker/engine/expert_rows.h"
#include "worker/engine/host_copies.h"
#include "worker/engine/layer_ops.h"
#include "worker/engine/phases.h"
#include "worker/engine/step_batch.h"
#include "worker/engine/world_sum.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

// What happens to a buffer that no later action uses. kLeave: nothing. kPoison: the buffer is filled with marks (see
// arena_watch.h). So the engine detects a program that reads the buffer later, or that writes where no buffer is.
enum class DeadBuffers : uint8_t { kLeave, kPoison };

struct EngineConfig {
  StageContext context;
  int32_t rank = 0;  // the rank's number among all ranks of the job
  Program program;
  Bytes arena;      // the planned size
  TrainSpec train;  // optimizer, schedule, seed, steps, global_batch
  DeadBuffers dead_buffers = DeadBuffers::kLeave;
  // Gradients of replicated parameters of at most this many numbers are packed to be summed in one transfer. Larger ones are
  // summed where they are: a second copy of them would be memory that no plan counts.
  int64_t packed_numbers = 65'536;
};

// This many steps in a row without an update end the run.
inline constexpr int32_t kMaxSkipsInARow = 100;

class Engine {
 public:
  // Validates the program again. FailedPrecondition: the program breaks a rule, needs an arena of another size than planned
  // (both sizes are named), or its microbatches do not make up the global batch.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineConfig config, Backend& backend, Communicator& communicator,
                                                        ModelState& state, const Dataset& dataset);

  // Updates the weights that ops read from the states. Call it before the first step, and whenever anything other than a step
  // has changed the states. It is a collective: with ZeRO each rank sends its share to all ranks that hold the same weights.
  absl::Status GatherWeights();

  // Runs the program once. `step` is 0-based and determines samples, dropout and learning rate. The report's `checkpoint` field
  // stays 0. Its `arena_peak` is measured only in the first call, because all steps run the same program. Returns Internal if
  // something was written beyond the arena. If the loss or the gradient norm is not finite, every rank notices it in the same
  // step, before any weight is changed. Then train.on_non_finite decides: either RunStep returns OutOfRange (the first rank
  // that returns it may abort the communication before the others do), or the step makes no update. If kMaxSkipsInARow steps in
  // a row make no update, the last of them also returns OutOfRange. Errors of the communicator keep their code; the message
  // names step and action.
  absl::StatusOr<StepReport> RunStep(int64_t step);

  // Requests that all ranks give way to another plan. The request reaches the other ranks at the end of the next step, together
  // with the loss and the other values that are then summed over all ranks (StepSums).
  void AskToYield() { asks_to_yield_ = true; }
  // True if any rank had called AskToYield by the end of the last step. The value is the same on every rank. The next step
  // resets it unless a rank asks again.
  bool yields() const { return yields_; }

  // At the end of each step, when the engine sums the loss over all ranks, it calls `votes` for this rank's votes about
  // in-memory checkpoints. Null: the engine uses the votes of CopyVotes{}.
  void SetCopyVotes(std::function<CopyVotes()> votes) { own_copy_votes_ = std::move(votes); }
  // The votes of all ranks at the end of the last step: a field is true only if all ranks set it. Every rank gets the same
  // votes.
  const CopyVotes& copy_votes() const { return copy_votes_; }

  // Why the last step's update was skipped; empty: it was not skipped.
  const std::string& skip_reason() const { return skip_reason_; }

  // Returns the mean loss over train.eval_batches global batches of held-out data (the first batches of the first epoch),
  // without dropout, in nats per token. Runs the forward actions of the program, so it works with any schedule. All ranks must
  // call it, between steps. It does not change any training step. `held_out` must be the same data on every rank, and of the
  // same kind as the data set of Create. The errors are those of RunStep, except that a loss that is not finite is no error and
  // is returned.
  absl::StatusOr<double> Evaluate(const Dataset& held_out);

  Bytes arena() const { return Bytes(static_cast<int64_t>(arena_.size_bytes())); }
  const Program& program() const { return config_.program; }
  // Returns the trace of the last step, by action.
  const std::vector<ActionTrace>& trace() const { return trace_; }
  // Returns the same trace in the form that the simulation uses. Times count from the beginning of the step, and each span says
  // how much of its work was hidden.
  std::vector<ActionSpan> Spans() const;

 private:
  // An action with everything that can be looked up before a step.
  struct ResolvedAction {
    TensorTable tensors;
    std::vector<Op> ops;  // ops of a compute action, in the order of its pass
    Elements transfer;    // result of a communication action; null for the sums over the world
    // The input of a gather or scatter, if it is not in `transfer`: the rank's share, or the sums of all shares.
    Elements source;
    int64_t count =
        0;  // elements of the transfer; for a gather or scatter, elements of one share; for an all-to-all, of one slot
    // The second pair of tensors of an all-to-all (CollectiveInfo::from_weights); null if there is none.
    Elements second_transfer, second_source;
    int64_t second_count = 0;
    int32_t start = -1;                   // for a wait: the index of its start
    std::vector<HostCopy> copies;         // for the start of an offload or reload
    std::vector<std::span<float>> dying;  // buffers that are dead after this action; empty with kLeave
  };

  // The memory for offloaded data, and the copies to and from this memory. Empty and null if nothing is offloaded.
  struct HostPool {
    std::span<float> memory;
    std::unique_ptr<HostCopies> copies;
  };

  // Counters at the beginning of the step.
  struct Before {
    int64_t bytes_sent;
    Nanos communication_cpu, core_wait;
  };

  Engine(EngineConfig config, const MemoryPlan& memory, std::span<float> arena_and_guard, StepBatch batch, DeviceSums sums,
         std::span<float> replicated, HostPool host_pool, Backend& backend, Communicator& communicator, ModelState& state,
         const Dataset& dataset);
  static std::vector<std::span<const float>> CountedGradients(const EngineConfig& config, ModelState& state);
  static absl::StatusOr<HostPool> MakeHostPool(const EngineConfig& config, const MemoryPlan& memory, Backend& backend);
  void Resolve(const MemoryPlan& memory);
  void ResolveTransfer(const Action& action, ResolvedAction& resolved);
  void ResolveStates(const Action& action, ResolvedAction& resolved);
  void ResolveCopies(const MemoryPlan& memory, const std::vector<std::vector<int32_t>>& buffers);

  absl::Status BeginStep(int64_t step);
  absl::Status LookAtArena();
  absl::Status RunAction(int32_t index);
  absl::Status RunOp(int32_t index, Op op);
  absl::Status RunForward();
  bool SharesReduction(const Action& action) const;
  absl::Status StartTransfer(int32_t index);
  absl::StatusOr<TransferTicket> StartAllToAll(int32_t index, const Route& route);
  absl::StatusOr<TransferTicket> IssueTransfer(int32_t index);
  absl::StatusOr<TransferTicket> StartCollective(Collective kind, const Route& route, const ResolvedAction& resolved);
  absl::Status Wait(int32_t index);
  Elements ShareOf(const Elements& buffer, const ResolvedAction& resolved) const;
  void Copy(const Elements& from, int64_t count, const Elements& to);
  absl::Status SumReplicated();
  absl::Status SumSharedEmbedding();
  absl::Status SumLoads();
  void UpdateWeights();
  void MoveRouterBiases();
  absl::StatusOr<TransferTicket> StartWorldSum();
  absl::Status TakeSums();
  std::string NotFiniteText() const;
  absl::Status FinishStep();
  void TakeTimes();
  StepReport MakeReport(const Before& before);

  const EngineConfig config_;
  const RankCoordinates coordinates_;
  const RealClock clock_;
  Backend& backend_;
  Communicator& communicator_;
  ModelState& state_;
  const std::vector<std::span<const float>> counted_gradients_;  // gradients that count in the norm
  const std::vector<AdamWTensor> updates_;
  ArenaWatch watch_;
  const std::span<float> arena_;
  bool measured_ = false;  // true: the use of the arena was measured

  DeviceSums sums_;
  const std::unique_ptr<LayerOps> ops_;
  ExpertRows expert_rows_;
  const std::unique_ptr<ExpertRounds> rounds_;  // null if no row can be without room
  const Dataset& dataset_;
  StepBatch batch_;
  WorldSum world_sum_;
  const std::span<float> replicated_;     // device memory for small gradients that tensor-parallel ranks add up; may be empty
  std::vector<ResolvedAction> resolved_;  // one for each action
  std::vector<std::string> names_;        // for each action, the name for profilers; empty on the CPU
  std::vector<int32_t> starts_;           // the result of StartsOfWaits
  std::vector<int32_t> hiding_;           // the result of HidingStarts
  std::vector<TransferTicket> tickets_;   // one for each action; used by starts of transfers
  std::vector<TransferTicket> second_tickets_;  // used by all-to-alls with a second pair of tensors
  const HostPool host_pool_;
  std::vector<HostCopies::Ticket> copy_tickets_;  // one for each action; used by starts of copies
  // Moments of an action: when it ended, which is also when the next action began. A start also has the times of its transfer.
  struct ActionMoments {
    Moment end;
    TransferTimes transfer;
  };
  Moment first_;                        // when the first action began
  std::vector<ActionMoments> moments_;  // one for each action
  std::vector<ActionTrace> trace_;      // one for each action

  // State of the step that runs.
  int64_t step_ = 0;
  Nanos begin_;
  double lr_ = 0;
  Nanos data_wait_;  // how long the step waited for its tokens
  double loss_ = 0;
  double gradient_norm_ = 0;
  ExpertLoad expert_load_;
  std::string skip_reason_;
  bool asks_to_yield_ = false, yields_ = false;
  std::function<CopyVotes()> own_copy_votes_;
  CopyVotes copy_votes_;
  int32_t skips_in_a_row_ = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_ENGINE_H_
