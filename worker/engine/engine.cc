#include "worker/engine/engine.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/status.h"
#include "planner/problem/batch_split.h"
#include "planner/problem/layer_kinds.h"
#include "planner/program/hidden_time.h"
#include "planner/program/validate.h"
#include "worker/contract/rank_progress.h"
#include "worker/engine/core_wait.h"
#include "worker/engine/lr_schedule.h"
#include "worker/model/counted_slots.h"

namespace lynx::worker {
namespace {

// Keeps the clipping factor finite if all gradients are zero. PyTorch's clip_grad_norm_ uses the same value.
constexpr double kNormEpsilon = 1e-6;

double TokensOf(const TrainSpec& train, const StageContext& context) {
  return static_cast<double>(train.global_batch) * context.model.seq;
}

absl::Status CheckBatch(const EngineConfig& config) {
  const StageContext& c = config.context;
  const BatchSplit split{config.train.global_batch, c.layout.dp, c.micro_batch};
  if (split.Possible() && split.microbatches() == c.microbatches) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the plan trains ", int64_t{c.layout.dp} * c.microbatches * c.micro_batch,
                                                    " samples a step (dp ", c.layout.dp, " x ", c.microbatches,
                                                    " microbatches x ", c.micro_batch, "), but the job's global batch is ",
                                                    config.train.global_batch, "; plan the job again"));
}

// True if the tensor-parallel ranks add up their gradients of the slot at the end of the step. This is necessary if each rank
// has computed the gradient from only a part of the tokens (with sequence parallelism) or from only a part of the heads.
bool SumsOverTensorRanks(const LayerShape& shape, const ParameterSlot& slot) {
  return shape.tp > 1 && (shape.sequence_parallel ? slot.replicated : slot.by_heads);
}

// True for the starts and waits that gather updated weights.
bool Gathers(ActionKind kind) {
  return kind == ActionKind::kWeightGatherStart || kind == ActionKind::kWeightGatherWait ||
         kind == ActionKind::kExpertGatherStart || kind == ActionKind::kExpertGatherWait;
}

// True if the elements of a tensor that a collective moves are fp32 in every model.
bool IsWide(Tensor tensor) {
  switch (tensor) {
    case Tensor::kLossStats:
    case Tensor::kRowWeights:
    case Tensor::kExpertWeights:
    case Tensor::kGradExpertWeights:
    case Tensor::kGradRowWeights: return true;
    default: return false;
  }
}

Bytes PackedBytes(const EngineConfig& config, const ModelState& state) {
  int64_t count = 0;
  for (const ParameterSlot& slot : state.slots()) {
    if (slot.count <= config.packed_numbers && SumsOverTensorRanks(config.context.shape(), slot)) count += slot.count;
  }
  return Bytes(count * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineConfig config, Backend& backend, Communicator& communicator,
                                                       ModelState& state, const Dataset& dataset) {
  LYNX_RETURN_IF_ERROR(CheckBatch(config));
  LYNX_RETURN_IF_ERROR(CheckEngineRuns(config.context.model, config.context.layout));
  LYNX_RETURN_IF_ERROR(ValidateProgram(config.program, config.context));
  LYNX_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(config.program, config.context, config.arena));
  if (memory.arena != config.arena) {
    return absl::FailedPreconditionError(absl::StrCat("the plan gives stage ", config.context.pipeline_rank, " an arena of ",
                                                      config.arena.value, " bytes, but its program needs ", memory.arena.value,
                                                      " bytes; plan the job again"));
  }
  const Bytes with_guard = memory.arena + ArenaWatch::kGuard;
  LYNX_ASSIGN_OR_RETURN(const std::span<float> arena, backend.Allocate(with_guard, "activation arena"));
  LYNX_CHECK(static_cast<int64_t>(arena.size_bytes()) == with_guard.value);
  LYNX_ASSIGN_OR_RETURN(StepBatch batch, StepBatch::Create(config.context, config.train.global_batch,
                                                           CoordinatesOf(config.context.layout, config.rank).dp, backend));
  LYNX_ASSIGN_OR_RETURN(DeviceSums sums, DeviceSums::Create(ExpertRows::CountersOf(config.context, config.program), backend));
  LYNX_ASSIGN_OR_RETURN(const std::span<float> replicated,
                        backend.Allocate(PackedBytes(config, state), "replicated gradients"));
  LYNX_ASSIGN_OR_RETURN(HostPool host_pool, MakeHostPool(config, memory, backend));
  return std::unique_ptr<Engine>(new Engine(std::move(config), memory, arena, std::move(batch), std::move(sums), replicated,
                                            std::move(host_pool), backend, communicator, state, dataset));
}

// Returns the gradients that this rank counts in the gradient norm.
std::vector<std::span<const float>> Engine::CountedGradients(const EngineConfig& config, ModelState& state) {
  std::vector<std::span<const float>> counted;
  const ParallelLayout& layout = config.context.layout;
  const int32_t tp_rank = CoordinatesOf(layout, config.rank).tp;
  const StateIndex index = StateIndexOf(config.context, tp_rank, MembersOf(layout, config.rank, Group::kData).index);
  for (const ParameterSlot& slot : CountedSlots(config.context, tp_rank, index, state.updated())) {
    counted.emplace_back(state.gradients().data() + slot.offset, static_cast<size_t>(slot.count));
  }
  return counted;
}

Engine::Engine(EngineConfig config, const MemoryPlan& memory, std::span<float> arena_and_guard, StepBatch batch,
               DeviceSums sums, std::span<float> replicated, HostPool host_pool, Backend& backend, Communicator& communicator,
               ModelState& state, const Dataset& dataset)
    : config_(std::move(config)), coordinates_(CoordinatesOf(config_.context.layout, config_.rank)), backend_(backend),
      communicator_(communicator), state_(state), counted_gradients_(CountedGradients(config_, state)),
      updates_(state.Updates()), watch_(arena_and_guard, backend), arena_(watch_.arena()), sums_(std::move(sums)),
      ops_(LayerOps::Make(config_.context, coordinates_.tp, config_.train.seed, 1 / TokensOf(config_.train, config_.context),
                          sums_.loss(), backend, state)),
      expert_rows_(config_.context, config_.program, sums_.device_counters(), backend),
      rounds_(ExpertRounds::Make(config_.context, config_.rank, backend, communicator, state)), dataset_(dataset),
      batch_(std::move(batch)), world_sum_(config_.context.layout.ranks(), config_.rank), replicated_(replicated),
      starts_(StartsOfWaits(config_.program)), hiding_(HidingStarts(config_.program, starts_)),
      tickets_(config_.program.size()), second_tickets_(config_.program.size()), host_pool_(std::move(host_pool)),
      moments_(config_.program.size()), trace_(config_.program.size()) {
  Resolve(memory);
}

absl::StatusOr<Engine::HostPool> Engine::MakeHostPool(const EngineConfig& config, const MemoryPlan& memory, Backend& backend) {
  HostPool pool;
  if (memory.host_peak.value == 0) return pool;
  const HostLayout host = LayOutHost(config.program, config.context);
  LYNX_ASSIGN_OR_RETURN(pool.memory, backend.AllocatePinned(host.pool, "host pool"));
  const auto copies = std::ranges::count_if(host.offsets, [](const auto& offsets) { return !offsets.empty(); });
  LYNX_ASSIGN_OR_RETURN(pool.copies, HostCopies::Make(static_cast<int32_t>(copies), backend));
  return pool;
}

void Engine::Resolve(const MemoryPlan& memory) {
  const Program& program = config_.program;
  const std::vector<std::vector<int32_t>> buffers = ResolveBuffers(program, config_.context, memory);
  const auto address = [&](const BufferInstance& b) { return arena_.data() + b.offset.value / sizeof(float); };
  resolved_.resize(program.size());
  const LayerKinds kinds(config_.context);
  if (!backend_.host_addressable()) {
    for (const Action& action : program) names_.push_back(ActionText(action));
  }
  ResolveCopies(memory, buffers);
  for (size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    ResolvedAction& resolved = resolved_[i];
    resolved.start = starts_[i];
    resolved.ops = OpsOf(kinds.GraphOf(action.layer), action);
    if (InfoOf(action.kind).group == Group::kHost) continue;
    const std::vector<Access> accesses = AccessesOf(action, config_.context);
    for (size_t a = 0; a < accesses.size(); ++a) {
      const BufferKey& key = accesses[a].key;
      const BufferInstance& buffer = memory.buffers[buffers[i][a]];
      const bool above = key.tensor == Tensor::kX && key.layer != action.layer;
      (above ? resolved.tensors.next_x : resolved.tensors.at[static_cast<size_t>(key.tensor)]) = address(buffer);
      if (!resolved.ops.empty()) continue;
      // The accesses of a collective are what it reads, and then what it writes; an all-to-all may have a second such pair.
      Elements& transfer = a < 2 ? resolved.transfer : resolved.second_transfer;
      if (a % 2 == 1) (a < 2 ? resolved.source : resolved.second_source) = transfer;
      transfer = {address(buffer), IsWide(key.tensor) ? DataType::kFloat32 : config_.context.model.dtype};
    }
    LYNX_CHECK(!resolved.ops.empty() || accesses.size() <= (InfoOf(action.kind).group == Group::kExpert ? 4 : 2));
    if (InfoOf(action.kind).phase == Phase::kStart) ResolveTransfer(action, resolved);
  }
  if (config_.dead_buffers == DeadBuffers::kLeave) return;
  for (const BufferInstance& buffer : memory.buffers) {
    resolved_[buffer.last].dying.emplace_back(address(buffer), buffer.bytes.value / sizeof(float));
  }
}

void Engine::ResolveCopies(const MemoryPlan& memory, const std::vector<std::vector<int32_t>>& buffers) {
  if (memory.host_peak.value == 0) return;
  const HostLayout host = LayOutHost(config_.program, config_.context);
  for (size_t i = 0; i < config_.program.size(); ++i) {
    if (host.offsets[i].empty()) continue;
    const std::vector<Access> accesses = AccessesOf(config_.program[i], config_.context);
    for (size_t a = 0; a < accesses.size(); ++a) {
      float* const here = arena_.data() + memory.buffers[buffers[i][a]].offset.value / sizeof(float);
      float* const there = host_pool_.memory.data() + host.offsets[i][a].value / sizeof(float);
      const bool out = InfoOf(config_.program[i].kind).flow == Flow::kOut;
      resolved_[i].copies.push_back(out ? HostCopy{here, there, accesses[a].bytes} : HostCopy{there, here, accesses[a].bytes});
    }
  }
  copy_tickets_.resize(config_.program.size());
}

void Engine::ResolveTransfer(const Action& action, ResolvedAction& resolved) {
  const LayerShape shape = config_.context.shape();
  switch (InfoOf(action.kind).group) {
    case Group::kTensor: {
      // For an all-gather or a reduce-scatter, `count` is the number of elements in the share of one rank.
      const bool of_stats = action.kind == ActionKind::kAllGatherStart && action.segment == Segment::kHead;
      resolved.count = of_stats ? shape.tokens() * 3 : shape.shard_tokens() * shape.hidden;
      return;
    }
    case Group::kNextStage:
    case Group::kPreviousStage: resolved.count = shape.shard_tokens() * shape.hidden; return;
    case Group::kExpert:
      // Each rank has the same room for its tokens, so all slots have the same size (LayerShape::expert_room).
      LYNX_CHECK(shape.capacity_permille > 0);
      resolved.second_count = shape.sent_rows() / shape.ep;
      resolved.count = resolved.second_count * shape.hidden;
      return;
    case Group::kData:
    case Group::kExpertData: return ResolveStates(action, resolved);
    case Group::kWorld:  // WorldSum has the values that all ranks add up
      return;
    case Group::kNone:
    case Group::kHost: break;
  }
  LYNX_CHECK(!"a start without a group");
}

void Engine::ResolveStates(const Action& action, ResolvedAction& resolved) {
  const bool experts = InfoOf(action.kind).group == Group::kExpertData;
  const ModelState::Range range = experts ? state_.ExpertRange(action.layer) : state_.LayerRange(action.layer);
  const int64_t shares = experts ? ExpertShares(config_.context) : OptimizerShares(config_.context);
  const bool gathers = Gathers(action.kind);
  const Elements weights =
      state_.rounded_weights().empty() ? Elements(state_.weights().data()) : Elements(state_.rounded_weights().data());
  resolved.transfer = (gathers ? weights : Elements(state_.gradients().data())) + range.begin;
  // For an all-gather or a reduce-scatter, `count` is the number of elements in the share of one rank.
  resolved.count = gathers || SharesReduction(action) ? range.count / shares : range.count;
}

// Does what a program does after the optimizer's update: rounds the weights, and gathers them from the other ranks.
absl::Status Engine::GatherWeights() {
  state_.RoundWeights(backend_);
  for (int32_t i = 0; i < static_cast<int32_t>(resolved_.size()); ++i) {
    if (!Gathers(config_.program[i].kind)) continue;
    LYNX_RETURN_IF_ERROR(Annotate(RunAction(i), "weights before the first step"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepReport> Engine::RunStep(int64_t step) {
  begin_ = backend_.BeginMarks();
  const Before before{.bytes_sent = communicator_.BytesSent(),
                      .communication_cpu = communicator_.ThreadCpuTime(),
                      .core_wait = ThreadCoreWait()};
  LYNX_RETURN_IF_ERROR(BeginStep(step));
  first_ = backend_.Mark();
  for (int32_t i = 0; i < static_cast<int32_t>(resolved_.size()); ++i) {
    if (!names_.empty()) backend_.BeginRange(names_[static_cast<size_t>(i)].c_str());
    const absl::Status status = RunAction(i);
    if (!names_.empty()) backend_.EndRange();
    moments_[i].end = backend_.Mark();
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("step ", step, ", action ", ActionText(config_.program[i])));
    }
    for (const std::span<float> buffer : resolved_[i].dying) {
      if (!measured_) watch_.Look(buffer);
      watch_.Mark(buffer);
    }
  }
  LYNX_RETURN_IF_ERROR(Annotate(FinishStep(), absl::StrCat("step ", step)));
  return MakeReport(before);
}

absl::Status Engine::FinishStep() {
  LYNX_RETURN_IF_ERROR(backend_.Finish());
  // On a device, the waits of a step do not block the host, so they cannot return the error of a transfer. It is returned here.
  if (!backend_.host_addressable()) LYNX_RETURN_IF_ERROR(communicator_.Failure());
  LYNX_RETURN_IF_ERROR(LookAtArena());
  TakeTimes();
  return absl::OkStatus();
}

void Engine::TakeTimes() {
  Nanos at = backend_.TimeOf(first_);
  for (size_t i = 0; i < moments_.size(); ++i) {
    trace_[i].begin = at;
    trace_[i].end = at = backend_.TimeOf(moments_[i].end);
    if (InfoOf(config_.program[i].kind).phase != Phase::kStart) continue;
    trace_[i].transfer_begin = backend_.TimeOf(moments_[i].transfer.started);
    trace_[i].transfer_end = backend_.TimeOf(moments_[i].transfer.completed);
  }
}

absl::Status Engine::BeginStep(int64_t step) {
  step_ = step;
  sums_.Clear();
  lr_ = LearningRate(config_.train, step);
  ops_->BeginStep(step);
  if (rounds_ != nullptr) rounds_->BeginStep();
  backend_.Fill(state_.gradients().data(), static_cast<int64_t>(state_.gradients().size()), 0);
  const Nanos before = clock_.Monotonic();
  const absl::Status loaded = batch_.Load(dataset_, step);
  data_wait_ = clock_.Monotonic() - before;
  return Annotate(loaded, absl::StrCat("step ", step));
}

absl::StatusOr<double> Engine::Evaluate(const Dataset& held_out) {
  backend_.BeginMarks();
  sums_.Clear();
  ops_->BeginEvaluation();
  const int32_t batches = config_.train.eval_batches;
  for (int32_t i = 0; i < batches; ++i) {
    LYNX_RETURN_IF_ERROR(Annotate(batch_.Load(held_out, i), absl::StrCat("evaluation, batch ", i)));
    LYNX_RETURN_IF_ERROR(Annotate(RunForward(), absl::StrCat("evaluation, batch ", i)));
  }
  LYNX_ASSIGN_OR_RETURN(StepSums own, sums_.Fetch());
  if (coordinates_.tp != 0) own.loss = 0;  // every tensor-parallel rank has the same loss
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, world_sum_.Start(own, communicator_));
  LYNX_RETURN_IF_ERROR(Annotate(communicator_.Wait(ticket).status(), "evaluation"));
  LYNX_RETURN_IF_ERROR(Annotate(backend_.Finish(), "evaluation"));
  if (config_.dead_buffers == DeadBuffers::kPoison) watch_.Mark(arena_);
  LYNX_RETURN_IF_ERROR(watch_.CheckGuard());
  return world_sum_.Sums().loss / (TokensOf(config_.train, config_.context) * batches);
}

// Runs only the forward actions of the program. A forward action depends only on other forward actions, and each rank keeps
// their order. So RunForward ends whenever the whole program ends. No buffer lives longer than in the whole program, so each
// buffer can keep its place in the arena.
absl::Status Engine::RunForward() {
  for (int32_t i = 0; i < static_cast<int32_t>(resolved_.size()); ++i) {
    const Action& action = config_.program[i];
    if (InfoOf(action.kind).part != StepPart::kForward) continue;
    const absl::Status status = RunAction(i);
    if (!status.ok()) return Annotate(status, absl::StrCat("action ", ActionText(action)));
  }
  return absl::OkStatus();
}

absl::Status Engine::LookAtArena() {
  LYNX_RETURN_IF_ERROR(watch_.CheckGuard());
  // With kPoison, all buffers have ended now, so the whole arena has marks again.
  const bool poisoned = config_.dead_buffers == DeadBuffers::kPoison;
  if (!measured_ && !poisoned) watch_.Look(arena_);
  measured_ = true;
  return poisoned ? watch_.CheckAllMarked() : absl::OkStatus();
}

absl::Status Engine::RunAction(int32_t index) {
  OwnProgress().Made();
  const Action& action = config_.program[index];
  const ResolvedAction& resolved = resolved_[index];
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute:
    case ActionKind::kBackward:
    case ActionKind::kWeight:
      for (Op op : resolved.ops) LYNX_RETURN_IF_ERROR(RunOp(index, op));
      return absl::OkStatus();
    case ActionKind::kOptimizer:
      if (skip_reason_.empty()) UpdateWeights();
      return absl::OkStatus();
    case ActionKind::kNormWait: LYNX_RETURN_IF_ERROR(Wait(index)); return TakeSums();
    case ActionKind::kOffloadStart:
    case ActionKind::kReloadStart:
      copy_tickets_[index] = host_pool_.copies->Start(
          InfoOf(action.kind).flow == Flow::kOut ? CopyDirection::kToHost : CopyDirection::kToDevice, resolved.copies);
      return absl::OkStatus();
    case ActionKind::kOffloadWait:
    case ActionKind::kReloadWait:
      moments_[resolved.start].transfer = {moments_[resolved.start].end,
                                           host_pool_.copies->Wait(copy_tickets_[resolved.start])};
      return absl::OkStatus();
    default: return InfoOf(action.kind).phase == Phase::kStart ? StartTransfer(index) : Wait(index);
  }
}

// Runs one op of a compute action, and the rounds that belong to it.
absl::Status Engine::RunOp(int32_t index, Op op) {
  OwnProgress().Made();  // on a slow CPU an action of many ops takes minutes
  const Action& action = config_.program[index];
  const TensorTable& tensors = resolved_[index].tensors;
  switch (action.kind) {
    case ActionKind::kWeight: ops_->Weight(op, action.layer, tensors); return absl::OkStatus();
    case ActionKind::kBackward:
      ops_->Backward(op, action.layer, batch_.Of(action.microbatch), tensors);
      return rounds_ != nullptr && op == Op::kPermute ? rounds_->Backward(action, tensors) : absl::OkStatus();
    default: break;
  }
  ops_->Forward(op, action.layer, batch_.Of(action.microbatch), tensors);
  if (action.kind == ActionKind::kForward) expert_rows_.Count(index, op, tensors);
  if (rounds_ == nullptr || op != Op::kUnpermute) return absl::OkStatus();
  return rounds_->Forward(action, tensors, expert_rows_.CountersOfRounds(index));
}

// True if each rank with the same weights needs only the summed gradients of its own share. `action`: the start of a reduction.
// This is true for every layer except a layer with a copy of the tied embedding. The two ranks that hold the embedding have
// different shares, so they add up the embedding's whole gradient at the end of the step.
bool Engine::SharesReduction(const Action& action) const {
  if (InfoOf(action.kind).group == Group::kExpertData) return state_.shares_experts();
  const ParameterSlot* const tied = state_.shared_embedding();
  return state_.shares_updates() && (tied == nullptr || tied->layer != action.layer);
}

absl::Status Engine::StartTransfer(int32_t index) {
  LYNX_ASSIGN_OR_RETURN(tickets_[index], IssueTransfer(index));
  return absl::OkStatus();
}

// Starts an all-to-all, which may be two transfers on one route.
absl::StatusOr<TransferTicket> Engine::StartAllToAll(int32_t index, const Route& route) {
  const ResolvedAction& r = resolved_[index];
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, communicator_.StartAllToAll(route, r.source, r.transfer, r.count));
  if (r.second_transfer.data == nullptr) return ticket;
  LYNX_ASSIGN_OR_RETURN(second_tickets_[index],
                        communicator_.StartAllToAll(route, r.second_source, r.second_transfer, r.second_count));
  return ticket;
}

absl::StatusOr<TransferTicket> Engine::IssueTransfer(int32_t index) {
  const Action& action = config_.program[index];
  const ResolvedAction& resolved = resolved_[index];
  const ActionInfo& info = InfoOf(action.kind);
  const Route route(info.group, action.stage);
  switch (info.group) {
    case Group::kTensor: return StartCollective(info.collective, route, resolved);
    case Group::kNextStage:
    case Group::kPreviousStage:
      return info.flow == Flow::kOut ? communicator_.StartSend(route, resolved.transfer, resolved.count)
                                     : communicator_.StartRecv(route, resolved.transfer, resolved.count);
    case Group::kExpert: return StartAllToAll(index, route);
    case Group::kData:
    case Group::kExpertData:
      if (Gathers(action.kind)) return communicator_.StartAllGather(route, resolved.transfer, resolved.count);
      return SharesReduction(action) ? communicator_.StartReduceScatter(route, resolved.transfer, resolved.count)
                                     : communicator_.StartAllReduce(route, resolved.transfer, resolved.count);
    case Group::kWorld:
      LYNX_RETURN_IF_ERROR(SumReplicated());
      LYNX_RETURN_IF_ERROR(SumSharedEmbedding());
      LYNX_RETURN_IF_ERROR(SumLoads());
      return StartWorldSum();
    case Group::kNone:
    case Group::kHost: break;
  }
  LYNX_CHECK(!"not a start");
  return absl::InternalError("");
}

// Starts the collective at the end of a segment.
absl::StatusOr<TransferTicket> Engine::StartCollective(Collective kind, const Route& route, const ResolvedAction& resolved) {
  switch (kind) {
    case Collective::kAllReduce: return communicator_.StartAllReduce(route, resolved.transfer, resolved.count);
    case Collective::kAllGather:
      if (resolved.source.data != nullptr) Copy(resolved.source, resolved.count, ShareOf(resolved.transfer, resolved));
      return communicator_.StartAllGather(route, resolved.transfer, resolved.count);
    case Collective::kReduceScatter:
      return communicator_.StartReduceScatter(route, resolved.source.data != nullptr ? resolved.source : resolved.transfer,
                                              resolved.count);
    case Collective::kAllToAll:
    case Collective::kNone: break;
  }
  LYNX_CHECK(!"not a collective of the tensor-parallel group");
  return absl::InternalError("");
}

absl::Status Engine::Wait(int32_t index) {
  const int32_t start = resolved_[index].start;
  LYNX_ASSIGN_OR_RETURN(moments_[start].transfer, communicator_.Wait(tickets_[start]));
  const ResolvedAction& resolved = resolved_[start];
  if (resolved.second_transfer.data != nullptr) {
    LYNX_ASSIGN_OR_RETURN(const TransferTimes second, communicator_.Wait(second_tickets_[start]));
    moments_[start].transfer.completed = second.completed;
  }
  if (resolved.source.data != nullptr && InfoOf(config_.program[start].kind).collective == Collective::kReduceScatter) {
    Copy(ShareOf(resolved.source, resolved), resolved.count, resolved.transfer);
  }
  return absl::OkStatus();
}

// Returns the rank's slot in the buffer of an all-gather or a reduce-scatter.
Elements Engine::ShareOf(const Elements& buffer, const ResolvedAction& resolved) const {
  return buffer + coordinates_.tp * resolved.count;
}

void Engine::Copy(const Elements& from, int64_t count, const Elements& to) {
  LYNX_CHECK(from.type == to.type);
  backend_.Copy(from.data, Bytes(count * ElementBytes(from.type)), to.data);
}

absl::Status Engine::SumReplicated() {
  for (const ParameterSlot& slot : state_.slots()) {
    if (slot.count <= config_.packed_numbers || !SumsOverTensorRanks(config_.context.shape(), slot)) continue;
    LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                          communicator_.StartAllReduce(Group::kTensor, state_.gradients().data() + slot.offset, slot.count));
    LYNX_RETURN_IF_ERROR(communicator_.Wait(ticket).status());
  }
  if (replicated_.empty()) return absl::OkStatus();
  const auto for_slots = [&](const auto& move) {
    float* at = replicated_.data();
    for (const ParameterSlot& slot : state_.slots()) {
      if (slot.count > config_.packed_numbers || !SumsOverTensorRanks(config_.context.shape(), slot)) continue;
      move(state_.gradients().data() + slot.offset, slot.count, at);
      at += slot.count;
    }
  };
  for_slots([&](float* gradient, int64_t count, float* at) { Copy(gradient, count, at); });
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, communicator_.StartAllReduce(Group::kTensor, replicated_.data(),
                                                                                  static_cast<int64_t>(replicated_.size())));
  LYNX_RETURN_IF_ERROR(communicator_.Wait(ticket).status());
  for_slots([&](float* gradient, int64_t count, float* at) { Copy(at, count, gradient); });
  return absl::OkStatus();
}

// Sums the gradient of the tied embedding. As in Megatron-LM, the first and the last stage both have the embedding, and each
// computes a part of its gradient. The parts have already been summed over the replicas.
absl::Status Engine::SumSharedEmbedding() {
  const ParameterSlot* const slot = state_.shared_embedding();
  if (slot == nullptr) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(
      const TransferTicket ticket,
      communicator_.StartAllReduce({Group::kData, kTiedEmbedding}, state_.gradients().data() + slot->offset, slot->count));
  return communicator_.Wait(ticket).status();
}

// Sums the loads of experts over the replicas; SumReplicated has summed them over the tensor-parallel ranks. They are whole
// numbers, so every order of sums gives the same bits.
absl::Status Engine::SumLoads() {
  const ModelState::Range loads = state_.LoadsRange();
  if (loads.count == 0 || config_.context.gradient_ranks() == 1) return absl::OkStatus();
  const Route route(Group::kData, config_.context.slices.front().stage);
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                        communicator_.StartAllReduce(route, state_.gradients().data() + loads.begin, loads.count));
  return communicator_.Wait(ticket).status();
}

absl::StatusOr<TransferTicket> Engine::StartWorldSum() {
  backend_.SumOfSquares(counted_gradients_, sums_.squared_norm());
  LYNX_ASSIGN_OR_RETURN(StepSums own, sums_.Fetch());
  if (coordinates_.tp != 0) own.loss = 0;
  expert_load_ = expert_rows_.LoadOf(sums_.counters());
  own.rows_routed = static_cast<double>(expert_load_.rows_routed);
  own.rows_dropped = static_cast<double>(expert_load_.rows_dropped);
  own.expert_skew = expert_load_.skew;
  own.rows_in_rounds = static_cast<double>(expert_load_.rows_in_rounds);
  if (rounds_ != nullptr) {
    own.rounds = rounds_->counts_for_group() ? static_cast<double>(rounds_->rounds()) : 0;
    own.most_rounds = static_cast<double>(rounds_->most_rounds());
  }
  own.yields = std::exchange(asks_to_yield_, false) ? 1 : 0;
  const CopyVotes copies = own_copy_votes_ ? own_copy_votes_() : CopyVotes{};
  own.copies_busy = copies.idle ? 0 : 1;
  own.copies_failed = copies.whole ? 0 : 1;
  own.copies_unwanted = copies.wanted ? 0 : 1;
  return world_sum_.Start(own, communicator_);
}

absl::Status Engine::TakeSums() {
  const StepSums sums = world_sum_.Sums();
  loss_ = sums.loss / TokensOf(config_.train, config_.context);
  gradient_norm_ = std::sqrt(sums.squared_norm);
  yields_ = sums.yields > 0;
  expert_load_.rows_routed = static_cast<int64_t>(sums.rows_routed);
  expert_load_.rows_dropped = static_cast<int64_t>(sums.rows_dropped);
  expert_load_.skew = sums.expert_skew;
  expert_load_.rows_in_rounds = static_cast<int64_t>(sums.rows_in_rounds);
  expert_load_.rounds = static_cast<int64_t>(sums.rounds);
  expert_load_.most_rounds = static_cast<int64_t>(sums.most_rounds);
  expert_load_.fullest_rank = world_sum_.FullestRank();
  copy_votes_ = {.idle = sums.copies_busy == 0, .whole = sums.copies_failed == 0, .wanted = sums.copies_unwanted == 0};
  skip_reason_.clear();
  if (std::isfinite(loss_) && std::isfinite(gradient_norm_)) {
    skips_in_a_row_ = 0;
    return absl::OkStatus();
  }
  if (config_.train.on_non_finite == NonFinitePolicy::kStop) {
    return absl::OutOfRangeError(absl::StrCat(NotFiniteText(),
                                              "; the weights are as the step before left them. A lower learning rate "
                                              "or a longer warm-up may help, or train.onNonFinite: skip"));
  }
  if (++skips_in_a_row_ >= kMaxSkipsInARow) {
    return absl::OutOfRangeError(absl::StrCat(NotFiniteText(), "; that is the ", kMaxSkipsInARow,
                                              "th step in a row without an update, so the run does not recover. A lower "
                                              "learning rate or a longer warm-up may help"));
  }
  skip_reason_ = NotFiniteText();
  return absl::OkStatus();
}

void Engine::UpdateWeights() {
  const OptimizerSpec& optimizer = config_.train.optimizer;
  const double clipping = optimizer.clip_norm > 0 ? std::min(1.0, optimizer.clip_norm / (gradient_norm_ + kNormEpsilon)) : 1.0;
  backend_.AdamW({.lr = lr_,
                  .beta1 = optimizer.beta1,
                  .beta2 = optimizer.beta2,
                  .eps = optimizer.eps,
                  .weight_decay = optimizer.weight_decay,
                  .step = step_ + 1,
                  .gradient_scale = clipping},
                 updates_);
  MoveRouterBiases();
}

void Engine::MoveRouterBiases() {
  const MoeSpec& moe = config_.context.model.moe;
  if (moe.bias_rate == 0) return;
  const double even = TokensOf(config_.train, config_.context) * moe.top_k / moe.experts;
  for (const ParameterSlot& slot : state_.slots()) {
    if (!slot.by_load) continue;
    backend_.MoveRouterBias(state_.Gradient(slot.layer, slot.parameter), moe.experts, even, static_cast<float>(moe.bias_rate),
                            state_.RouterBias(slot.layer));
  }
}

}  // namespace lynx::worker
