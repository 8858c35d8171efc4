#include "worker/engine/expert_rounds.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "planner/problem/expert_rounds.h"

namespace lynx::worker {
namespace {

template <class T>
class TypedExpertRounds final : public ExpertRounds {
 public:
  TypedExpertRounds(const StageContext& context, int32_t rank, Backend& backend, LayerBackend<T>& ops,
                    Communicator& communicator, ModelState& state)
      : ExpertRounds(context, rank, backend, communicator, state), ops_(ops), forward_(RoundScratchOf(Pass::kForward, shape_)),
        backward_(RoundScratchOf(Pass::kBackward, shape_)) {}

  absl::Status Forward(const Action& action, const TensorTable& tensors, const RoundCounters& counters) override;
  absl::Status Backward(const Action& action, const TensorTable& tensors) override;

 private:
  // The tensors of a round.
  struct Round {
    Round(const RoundScratch& at, const TensorTable& tensors)
        : workspace(static_cast<char*>(tensors.at[static_cast<size_t>(Tensor::kWorkspace)])), late(Wide(at.late)),
          route(static_cast<RouteChoice*>(At(at.route))), counts(static_cast<int32_t*>(At(at.counts))), sent(Typed(at.sent)),
          received(Typed(at.received)), sent_weights(Wide(at.sent_weights)), received_weights(Wide(at.received_weights)),
          fc1(Typed(at.fc1)), silu(Typed(at.silu)), swiglu(Typed(at.swiglu)), grad_results(Typed(at.grad_results)),
          grad_fc1(Typed(at.grad_fc1)), grad_sent_weights(Wide(at.grad_sent_weights)),
          grad_received_weights(Wide(at.grad_received_weights)) {}

    void* At(Bytes offset) const { return workspace + offset.value; }
    T* Typed(Bytes offset) const { return static_cast<T*>(At(offset)); }
    float* Wide(Bytes offset) const { return static_cast<float*>(At(offset)); }

    char* const workspace;
    float* const late;
    RouteChoice* const route;
    int32_t* const counts;
    T *const sent, *const received;
    float *const sent_weights, *const received_weights;
    T *const fc1, *const silu, *const swiglu, *const grad_results, *const grad_fc1;
    float *const grad_sent_weights, *const grad_received_weights;
  };

  // Sends the rows of a round to their experts, and computes what swiglu makes of them.
  absl::Status Dispatch(const Action& action, const TensorTable& tensors, int32_t number, const Round& round);
  // Computes the gradients of the experts' weights and of the rows' weights. In `grad_results`, replaces the gradients of the
  // rows' results by the gradients of the rows.
  void ExpertGradients(int32_t layer, const Round& round);

  static const T* Read(const TensorTable& tensors, Tensor tensor) {
    return static_cast<const T*>(tensors.at[static_cast<size_t>(tensor)]);
  }
  static const RouteChoice* RouteOf(const TensorTable& tensors) {
    return static_cast<const RouteChoice*>(tensors.at[static_cast<size_t>(Tensor::kRoute)]);
  }
  const T* WeightOf(int32_t layer, Parameter weight) const { return state_.WeightOfOps<T>(layer, weight); }

  LayerBackend<T>& ops_;
  const RoundScratch forward_, backward_;
};

template <class T>
absl::Status TypedExpertRounds<T>::Dispatch(const Action& action, const TensorTable& tensors, int32_t number,
                                            const Round& round) {
  backend_.RouteOfRound(RouteOf(tensors), choices_, router_.room, number, round.route);
  ops_.TokensToRows(router_, round.route, Read(tensors, Tensor::kLn2), round.sent, round.sent_weights);
  LYNX_RETURN_IF_ERROR(Exchange(action, round.sent, round.received, shape_.hidden, round.sent_weights, round.received_weights));
  ops_.ExpertForward(experts_, round.received_weights, round.received, WeightOf(action.layer, Parameter::kExpertsFc1Weight),
                     shape_.hidden, shape_.fc1_width(), round.fc1);
  ops_.SiluForward(round.fc1, experts_.rows(), shape_.mlp_width(), round.silu);
  ops_.ExpertSwigluForward(experts_, round.received_weights, round.fc1, round.silu, shape_.mlp_width(), round.swiglu);
  return absl::OkStatus();
}

template <class T>
absl::Status TypedExpertRounds<T>::Forward(const Action& action, const TensorTable& tensors, const RoundCounters& counters) {
  const Round round(forward_, tensors);
  if (action.kind == ActionKind::kForward) LYNX_RETURN_IF_ERROR(Agree(action, RouteOf(tensors), round.counts));
  for (int32_t number = 0; number < KnownRounds(action); ++number) {
    LYNX_RETURN_IF_ERROR(Dispatch(action, tensors, number, round));
    if (counters.received != nullptr) {
      backend_.CountRows(experts_, round.received_weights, counters.by_expert, counters.received);
    }
    // The rows that were sent are not needed any more, so the results take their place.
    ops_.ExpertForward(experts_, round.received_weights, round.swiglu, WeightOf(action.layer, Parameter::kExpertsFc2Weight),
                       shape_.mlp_width(), shape_.hidden, round.sent);
    LYNX_RETURN_IF_ERROR(Exchange(action, round.sent, round.received, shape_.hidden));
    ops_.RowsToTokens(router_, round.route, round.received, /*accumulate=*/true, static_cast<T*>(tensors.next_x));
  }
  return absl::OkStatus();
}

template <class T>
void TypedExpertRounds<T>::ExpertGradients(int32_t layer, const Round& round) {
  const float* const weights = round.received_weights;
  const int64_t h = shape_.hidden, w = shape_.mlp_width();
  ops_.ExpertWeight(experts_, weights, round.swiglu, round.grad_results, w, h,
                    state_.Gradient(layer, Parameter::kExpertsFc2Weight));
  // The gradient of swiglu overwrites swiglu.
  ops_.ExpertBackward(experts_, weights, round.grad_results, WeightOf(layer, Parameter::kExpertsFc2Weight), w, h, round.swiglu);
  ops_.ExpertSwigluBackward(experts_, weights, round.fc1, round.silu, round.swiglu, w, round.grad_fc1,
                            round.grad_received_weights);
  ops_.SiluBackward(round.fc1, experts_.rows(), w, round.grad_fc1);
  ops_.ExpertWeight(experts_, weights, round.received, round.grad_fc1, h, shape_.fc1_width(),
                    state_.Gradient(layer, Parameter::kExpertsFc1Weight));
  ops_.ExpertBackward(experts_, weights, round.grad_fc1, WeightOf(layer, Parameter::kExpertsFc1Weight), h, shape_.fc1_width(),
                      round.grad_results);
}

template <class T>
absl::Status TypedExpertRounds<T>::Backward(const Action& action, const TensorTable& tensors) {
  const Round round(backward_, tensors);
  T* const grad_ln2 = static_cast<T*>(tensors.at[static_cast<size_t>(Tensor::kGradLn2)]);
  const bool exchanged = shape_.ep > 1;
  for (int32_t number = 0; number < KnownRounds(action); ++number) {
    LYNX_RETURN_IF_ERROR(Dispatch(action, tensors, number, round));
    T* const grads = exchanged ? round.sent : round.grad_results;
    ops_.TokensToRows(router_, round.route, Read(tensors, Tensor::kGradFc2), grads, nullptr);
    LYNX_RETURN_IF_ERROR(Exchange(action, grads, round.grad_results, shape_.hidden));
    ExpertGradients(action.layer, round);
    LYNX_RETURN_IF_ERROR(
        Exchange(action, round.grad_results, grads, shape_.hidden, round.grad_received_weights, round.grad_sent_weights));
    ops_.RowsToTokens(router_, round.route, grads, /*accumulate=*/true, grad_ln2);
    backend_.WeightGradientsOfChoices(round.route, choices_, round.grad_sent_weights, round.late);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<ExpertRounds> ExpertRounds::Make(const StageContext& context, int32_t rank, Backend& backend,
                                                 Communicator& communicator, ModelState& state) {
  if (context.shape().round_room() == 0) return nullptr;
  if (context.model.dtype == DataType::kBfloat16) {
    return std::make_unique<TypedExpertRounds<Bfloat16>>(context, rank, backend, backend.bfloat16(), communicator, state);
  }
  return std::make_unique<TypedExpertRounds<float>>(context, rank, backend, backend, communicator, state);
}

ExpertRounds::ExpertRounds(const StageContext& context, int32_t rank, Backend& backend, Communicator& communicator,
                           ModelState& state)
    : shape_(context.shape()), choices_(shape_.shard_tokens() * shape_.top_k), router_{.n = shape_.shard_tokens(),
                                                                                       .h = shape_.hidden,
                                                                                       .experts = shape_.experts,
                                                                                       .top_k = shape_.top_k,
                                                                                       .room = shape_.round_room()},
      experts_{.blocks = shape_.experts, .room = router_.room, .experts = shape_.own_experts()},
      member_(MembersOf(context.layout, rank, Group::kExpert).index), microbatches_(context.microbatches), backend_(backend),
      communicator_(communicator), state_(state), known_(static_cast<size_t>(context.model.layers) * microbatches_),
      counts_(static_cast<size_t>(shape_.ep)) {}

int32_t& ExpertRounds::KnownRounds(const Action& action) {
  return known_[static_cast<size_t>(action.layer) * microbatches_ + action.microbatch];
}

absl::Status ExpertRounds::Agree(const Action& action, const RouteChoice* route, int32_t* counts) {
  backend_.MostWithoutRoom(route, choices_, counts + member_);
  if (shape_.ep > 1) {
    // The bits of the counts are sent as floats, and no code computes with these floats.
    const Elements words(counts, DataType::kFloat32);
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          communicator_.StartAllGather(Route(Group::kExpert, action.stage), words, 1));
    LYNX_RETURN_IF_ERROR(communicator_.Wait(ticket).status());
  }
  backend_.Copy(counts, Bytes(std::ssize(counts_) * static_cast<int64_t>(sizeof(int32_t))), counts_.data());
  LYNX_RETURN_IF_ERROR(backend_.Finish());
  // On a device with memory of its own, a transfer that was given up ends like one that succeeded.
  if (!backend_.host_addressable()) LYNX_RETURN_IF_ERROR(communicator_.Failure());
  const int64_t rows = *std::ranges::max_element(counts_);
  LYNX_CHECK(rows >= 0 && rows <= shape_.shard_tokens());
  const int64_t rounds = (rows + router_.room - 1) / router_.room;
  KnownRounds(action) = static_cast<int32_t>(rounds);
  rounds_ += rounds;
  most_ = std::max(most_, rounds);
  return absl::OkStatus();
}

absl::Status ExpertRounds::Exchange(const Action& action, Elements send, Elements receive, int64_t columns) {
  if (shape_.ep == 1) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(
      const TransferTicket ticket,
      communicator_.StartAllToAll(Route(Group::kExpert, action.stage), send, receive, router_.rows() / shape_.ep * columns));
  return communicator_.Wait(ticket).status();
}

absl::Status ExpertRounds::Exchange(const Action& action, Elements send, Elements receive, int64_t columns, float* send_weights,
                                    float* receive_weights) {
  if (shape_.ep == 1) return absl::OkStatus();
  const Route route(Group::kExpert, action.stage);
  const int64_t rows = router_.rows() / shape_.ep;
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, communicator_.StartAllToAll(route, send, receive, rows * columns));
  LYNX_ASSIGN_OR_RETURN(const TransferTicket second, communicator_.StartAllToAll(route, send_weights, receive_weights, rows));
  LYNX_RETURN_IF_ERROR(communicator_.Wait(ticket).status());
  return communicator_.Wait(second).status();
}

}  // namespace lynx::worker
