#include "worker/rank/rank_run.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "common/meminfo.h"
#include "common/status.h"
#include "planner/program/memory_model.h"
#include "planner/report/step_trace.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/shard.h"
#include "worker/collectives/group.h"
#include "worker/collectives/nccl_communicator.h"
#include "worker/contract/rank_progress.h"
#include "worker/data/dataset.h"
#include "worker/engine/engine.h"
#include "worker/engine/staged_communicator.h"
#include "worker/model/model_state.h"
#include "worker/rank/check/node_check.h"
#include "worker/rank/peers/agreement.h"
#include "worker/rank/peers/device_transport.h"
#include "worker/rank/peers/idle_limit.h"
#include "worker/rank/peers/link_meter.h"
#include "worker/rank/peers/same_data.h"
#include "worker/rank/peers/with_cause.h"
#include "worker/rank/records/run_log.h"
#include "worker/rank/states/checkpoint_writer.h"
#include "worker/rank/states/copy_resume.h"
#include "worker/rank/states/copy_writer.h"
#include "worker/rank/states/peer_copies.h"
#include "worker/rank/states/resume.h"

namespace lynx::worker {
namespace {

// Attaches the communicator to the cancellation, and detaches it before the communicator is destroyed.
class Attachment {
 public:
  Attachment(Cancellation& cancellation, Communicator& communicator) : cancellation_(cancellation) {
    cancellation_.Attach(&communicator);
  }
  ~Attachment() { cancellation_.Attach(nullptr); }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

 private:
  Cancellation& cancellation_;
};

CommunicatorOptions OptionsOf(const RankConfig& config, int listen_fd) {
  CommunicatorOptions options;
  options.job = config.job;
  options.generation = config.generation;
  options.secret = config.connection_secret;
  options.tell = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  options.layout = config.context.layout;
  options.experts = config.context.model.moe.any();
  options.rank = config.rank;
  options.listen_fd = listen_fd;
  options.peers = config.peers;
  options.idle_timeout = kIdleLimit;
  options.silence_limit = kSilenceLimit;
  options.progress_limit = config.progress_limit;
  options.encrypt = config.encryption != RankEncryption::kOff;
  options.pacing_bytes_per_second = config.pacing_bytes_per_second;
  return options;
}

// Returns the size of this rank's states in a checkpoint: weights and both moments.
Bytes FullShardBytes(ModelState& state) { return Bytes(static_cast<int64_t>(3 * state.first_moments().size_bytes())); }

// Returns the size of the states that this rank writes to checkpoints, or 0 if it writes none.
Bytes WrittenBytes(const ModelState& state, const StageContext& context, const RankCoordinates& coordinates) {
  return StateBytes(WrittenSlots(context, coordinates.tp, coordinates.dp, state));
}

CheckpointIdentity IdentityOf(const RankConfig& config, const Dataset& dataset) {
  return {.job = config.job,
          .generation = config.generation,
          .seed = config.spec.train.seed,
          .model = config.context.model,
          .layout = config.context.layout,
          .data = dataset.fingerprint()};
}

// Everything that is needed to run the steps.
struct Training {
  const RankConfig& config;
  Engine& engine;
  const Dataset* held_out;  // null if the job has no evaluation
  int64_t first;            // the first step of this generation
  bool on_host;             // false if the engine computes on a device, whose progress the host does not see
  bool traces;              // true if this rank reports traces of its steps
  IdleLimit& idle_limit;
  LinkMeter& links;
  Bytes checkpoint_bytes;
  CheckpointWriter& checkpoints;
  CopyWriter& copies;
  ReportFile& reports;
  RunLog* log;  // null on all ranks except rank 0
  const Cancellation& cancellation;
};

// If the run was asked to give way but the checkpoint for this could not be written, the run tries again after this many steps.
constexpr int64_t kStepsBetweenYields = 20;

bool Evaluates(const TrainSpec& train, int64_t steps_done) {
  return train.eval_every > 0 && steps_done % train.eval_every == 0;
}

// Returns how long a step or an evaluation may show no progress. A device does its work in one piece, and loads its kernels in
// the first step.
Nanos QuietTime(const Training& training) { return training.on_host ? Nanos(0) : kIdleLimit; }

absl::StatusOr<StepReport> RunStep(const Training& training, int64_t step) {
  const QuietWork quiet(QuietTime(training));
  return WithCauseOfCode(training.engine.RunStep(step));
}

// Evaluates after `steps_done` steps, on every rank.
absl::StatusOr<EvaluationReport> Evaluate(const Training& training, int64_t steps_done) {
  const RealClock clock;
  const Nanos begin = clock.Monotonic();
  const QuietWork quiet(QuietTime(training));
  const TrainSpec& train = training.config.spec.train;
  const absl::StatusOr<double> loss = training.engine.Evaluate(*training.held_out);
  if (!loss.ok()) return Annotate(loss.status(), absl::StrCat("after ", steps_done, " steps"));
  return EvaluationReport{.step = steps_done,
                          .loss = *loss,
                          .tokens = int64_t{train.eval_batches} * train.global_batch * training.config.context.model.seq,
                          .duration = clock.Monotonic() - begin};
}

// Reports the trace of the last step, in parts.
void AppendTrace(const Training& training, int64_t step) {
  const std::vector<int64_t> times = TraceTimes(training.engine.Spans());
  constexpr size_t kPart = kTimesPerAction * kTraceActionsPerPart;
  for (size_t first = 0; first < times.size(); first += kPart) {
    const auto begin = times.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kPart, times.size() - first));
    training.reports.Append(TraceReport{.step = step,
                                        .actions = static_cast<int32_t>(times.size() / kTimesPerAction),
                                        .first = static_cast<int32_t>(first / kTimesPerAction),
                                        .times = {begin, begin + count}});
  }
}

// Runs one step and reports it. If an evaluation is due after the step, runs and reports it too.
absl::Status TrainStep(const Training& training, int64_t step, Nanos checkpoint_time) {
  const bool tells = training.config.rank == 0;
  LYNX_ASSIGN_OR_RETURN(StepReport report, RunStep(training, step));
  report.checkpoint = checkpoint_time;
  report.copied_steps = training.copies.copied_steps();
  report.copies_skipped = training.copies.skipped();
  report.links = training.links.SinceLast();
  report.resident = ResidentMemory();
  training.idle_limit.RecordStep(report.duration);
  training.reports.Append(report);
  if (training.traces && IsTracedStep(step - training.first + 1)) AppendTrace(training, step);
  const std::string& skip_reason = training.engine.skip_reason();
  if (tells && !skip_reason.empty()) training.reports.Append(StepSkipped{.step = step, .reason = skip_reason});
  std::optional<EvaluationReport> evaluation;
  if (Evaluates(training.config.spec.train, step + 1)) {
    LYNX_ASSIGN_OR_RETURN(evaluation, WithCauseOfCode(Evaluate(training, step + 1)));
    if (tells) training.reports.Append(*evaluation);
  }
  if (training.log != nullptr) training.log->Add(report, evaluation);
  return absl::OkStatus();
}

// Gives way. Called after a step at which all ranks agreed to give way. Returns true if the checkpoint of this step is visible.
// Returns false if it could not be written; then the run continues.
absl::StatusOr<bool> Yield(const Training& training, int64_t steps_done) {
  const CheckpointPatience patience(training.idle_limit, training.checkpoint_bytes);
  LYNX_ASSIGN_OR_RETURN(const bool visible, training.checkpoints.WriteNow(steps_done));
  if (visible) {
    training.copies.Drop();
    training.reports.Append(RankYielded{.steps = steps_done});
  }
  return visible;
}

enum class RunEnd : uint8_t { kDone, kYielded };

// Runs all remaining steps, and writes their checkpoints.
absl::StatusOr<RunEnd> Train(const Training& training) {
  const RealClock clock;
  const JobSpec& spec = training.config.spec;
  const int64_t steps = spec.train.steps;
  Nanos checkpoint_time;
  int64_t next_yield = training.first;
  for (int64_t step = training.first; step < steps; ++step) {
    if (step >= next_yield && training.cancellation.YieldRequested()) training.engine.AskToYield();
    LYNX_RETURN_IF_ERROR(TrainStep(training, step, std::exchange(checkpoint_time, Nanos(0))));
    const int64_t done = step + 1;
    if (training.engine.yields() && done < steps) {
      LYNX_ASSIGN_OR_RETURN(const bool yielded, Yield(training, done));
      if (yielded) return RunEnd::kYielded;
      next_yield = done + kStepsBetweenYields;
      continue;
    }
    const Nanos begin = clock.Monotonic();
    training.copies.AfterStep(done, training.engine.copy_votes());
    checkpoint_time = clock.Monotonic() - begin;
    const bool writes = WritesCheckpoint(spec, done);
    if (!writes && !training.checkpoints.under_way()) continue;
    const CheckpointPatience patience(training.idle_limit, training.checkpoint_bytes);
    LYNX_RETURN_IF_ERROR(training.checkpoints.Poll());
    if (writes) {
      LYNX_RETURN_IF_ERROR(done == steps ? training.checkpoints.WriteLast(done) : training.checkpoints.Write(done));
    }
    checkpoint_time = clock.Monotonic() - begin;
  }
  training.copies.Drop();
  training.reports.Append(RankDone{.steps = steps});
  return RunEnd::kDone;
}

// Opens the job's held-out data. Returns null if the job has no evaluation.
absl::StatusOr<std::unique_ptr<Dataset>> OpenHeldOut(const RankConfig& config) {
  if (config.spec.train.eval_every == 0) return std::unique_ptr<Dataset>();
  const DataSpec held_out{.kind = config.spec.data.kind, .path = config.spec.data.validation_path};
  return OpenDataset(held_out, config.context.model.seq, config.context.model.vocab, config.spec.train.seed);
}

// Resumes from the newest states, which are in memory or on disk.
absl::StatusOr<ResumePoint> ResumeFrom(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& group,
                                       PeerCopies* peer_copies, ModelState& state, ReportFile& reports) {
  std::unique_ptr<CopyResume> copies;
  if (peer_copies != nullptr) {
    LYNX_ASSIGN_OR_RETURN(copies, CopyResume::Begin(config, *peer_copies, group, reports));
  }
  LYNX_ASSIGN_OR_RETURN(const ResumePoint point, LoadResumePoint(config, run, group, copies.get(), state, reports));
  if (copies != nullptr) copies->MarkResumed(point.steps_done);
  return point;
}

// Does everything after the rank has connected to its peers. If it returns an error, the caller must tell the error to the
// peers (see Run). `between_hosts` transfers this process's memory, `between_devices` transfers the device's memory.
absl::StatusOr<RunEnd> RunConnected(const RankConfig& config, Backend& backend, Communicator& between_hosts,
                                    Communicator& between_devices, ReportFile& reports, const Cancellation& cancellation) {
  const RankCoordinates coordinates = CoordinatesOf(config.context.layout, config.rank);
  const RankGroup group{config.rank, config.context.layout.ranks(), between_hosts};
  LYNX_ASSIGN_OR_RETURN(
      const std::unique_ptr<Dataset> dataset,
      WithCause(OpenDataset(config.spec.data, config.context.model.seq, config.context.model.vocab, config.spec.train.seed),
                FaultCause::kData));
  std::optional<QuietWork> makes_states(TimeFor(StatesOf(config.context).total(), kSlowMemoryPerSecond));
  LYNX_ASSIGN_OR_RETURN(ModelState state,
                        WithCauseOfCode(ModelState::Create(config.context, coordinates.tp,
                                                           MembersOf(config.context.layout, config.rank, Group::kData).index,
                                                           config.spec.train.seed, backend)));
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                        WithCauseOfCode(Engine::Create({.context = config.context,
                                                        .rank = config.rank,
                                                        .program = config.program,
                                                        .arena = config.arena,
                                                        .train = config.spec.train},
                                                       backend, between_devices, state, *dataset)));
  makes_states.reset();
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> held_out, WithCause(OpenHeldOut(config), FaultCause::kData));
  LYNX_ASSIGN_OR_RETURN(const Bytes checkpoint_bytes,
                        CheckSameData(dataset->fingerprint(), WrittenBytes(state, config.context, coordinates), group));
  if (held_out != nullptr) LYNX_RETURN_IF_ERROR(CheckSameData(held_out->fingerprint(), Bytes(0), group).status());
  IdleLimit idle_limit(between_devices, config.progress_limit);
  const CheckpointIdentity run = IdentityOf(config, *dataset);
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<PeerCopies> peer_copies,
                        PeerCopies::Meet(config, run, FullShardBytes(state), group, reports));
  ResumePoint resumed;
  {
    const CheckpointPatience patience(idle_limit, checkpoint_bytes);
    LYNX_ASSIGN_OR_RETURN(resumed, ResumeFrom(config, run, group, peer_copies.get(), state, reports));
    const QuietWork gathers(backend.host_addressable() ? Nanos(0) : kIdleLimit);
    LYNX_RETURN_IF_ERROR(WithCauseOfCode(engine->GatherWeights()));
  }
  const int64_t first = resumed.steps_done;
  reports.Append(RankReady{.next_step = first,
                           .arena = engine->arena(),
                           .states = state.bytes(),
                           .backend = backend.Name(),
                           .from_copies = resumed.from_copies});
  CheckpointWriter checkpoints(config, run, group, state, reports);
  const RealClock clock;
  CopyWriter copies(config, run, peer_copies.get(), state, reports, clock);
  if (copies.makes()) engine->SetCopyVotes([&] { return copies.Votes(); });
  LinkMeter links(between_devices);
  std::optional<RunLog> log;
  if (config.rank == 0) log.emplace(config, first, clock);
  return Train({.config = config,
                .engine = *engine,
                .held_out = held_out.get(),
                .first = first,
                .on_host = backend.host_addressable(),
                .traces = TracesForItsStage(coordinates),
                .idle_limit = idle_limit,
                .links = links,
                .checkpoint_bytes = checkpoint_bytes,
                .checkpoints = checkpoints,
                .copies = copies,
                .reports = reports,
                .log = log ? &*log : nullptr,
                .cancellation = cancellation});
}

// Returns the communicator for device memory. It uses NCCL, or transfers data through host memory if no rank has NCCL.
absl::StatusOr<std::unique_ptr<Communicator>> BetweenDevices(const RankConfig& config, Communicator& between_hosts,
                                                             Backend& backend) {
  const ParallelLayout& layout = config.context.layout;
  LYNX_ASSIGN_OR_RETURN(const bool by_nccl, AgreeOnNccl(NcclName(), MachineName(), config.encryption,
                                                        {config.rank, layout.ranks(), between_hosts}));
  if (!by_nccl) return std::make_unique<StagedCommunicator>(layout, config.rank, between_hosts, backend);
  const QuietWork begins(kIdleLimit);  // NCCL does not report its progress
  const NcclOptions options{.layout = layout,
                            .experts = config.context.model.moe.any(),
                            .rank = config.rank,
                            .program = &config.program,
                            .idle_timeout = kIdleLimit};
  return MakeNcclCommunicator(options, between_hosts, backend);
}

absl::StatusOr<RunEnd> Run(const RankConfig& config, int listen_fd, Backend& backend, ReportFile& reports,
                           Cancellation& cancellation) {
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, ConnectTcp(OptionsOf(config, listen_fd)));
  const Attachment attachment(cancellation, *communicator);
  const auto tell = [&](const absl::Status& failure) {
    communicator->Abort(Annotate(failure, absl::StrCat("rank ", config.rank)));
  };
  const auto run = [&]() -> absl::StatusOr<RunEnd> {
    if (config.check) {
      const QuietWork check(kIdleLimit);
      LYNX_ASSIGN_OR_RETURN(const NodeCheckReport checked, CheckNodes(config, {}, backend, *communicator));
      if (config.rank == 0) reports.Append(checked);
    }
    if (backend.host_addressable()) {
      return RunConnected(config, backend, *communicator, *communicator, reports, cancellation);
    }
    LYNX_ASSIGN_OR_RETURN(const auto between_devices, WithCauseOfCode(BetweenDevices(config, *communicator, backend)));
    absl::StatusOr<RunEnd> end = RunConnected(config, backend, *communicator, *between_devices, reports, cancellation);
    if (!end.ok()) tell(end.status());  // before `between_devices` ends, which may wait for peers
    return end;
  };
  absl::StatusOr<RunEnd> end = run();
  if (!end.ok()) tell(end.status());
  return end;
}

}  // namespace

int RunRank(const RankConfig& config, int listen_fd, Backend& backend, ReportFile& reports, Cancellation& cancellation) {
  const absl::StatusOr<RunEnd> end = Run(config, listen_fd, backend, reports, cancellation);
  if (end.ok()) return *end == RunEnd::kYielded ? kRankExitYielded : kRankExitOk;
  if (cancellation.requested()) return kRankExitCancelled;
  const RankFailure failure{.reason = std::string(end.status().message()),
                            .peer_lost = IsPeerLoss(end.status()),
                            .cause = CauseOf(end.status()),
                            .peers = LinkPeersOf(end.status())};
  std::fprintf(stderr, "rank %d: %s\n", config.rank, failure.reason.c_str());
  reports.Append(failure);
  return failure.peer_lost ? kRankExitPeerLost : kRankExitFailure;
}

}  // namespace lynx::worker
