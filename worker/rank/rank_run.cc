#include "worker/rank/rank_run.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/dataset.h"
#include "worker/engine/engine.h"
#include "worker/model/model_state.h"
#include "worker/rank/checkpoint_writer.h"

namespace lynx {
namespace {

// A peer that dies closes its connections, which is noticed at once. This is for one that is frozen or cut off:
// longer than any wait for a neighbour's work or for a checkpoint to be verified.
constexpr Nanos kIdleTimeout{600'000'000'000};

// Detaches the communicator from the cancellation before it is destroyed.
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
  options.layout = config.context.layout;
  options.rank = config.rank;
  options.listen_fd = listen_fd;
  options.peers = config.peers;
  options.idle_timeout = kIdleTimeout;
  options.pacing_bytes_per_second = config.pacing_bytes_per_second;
  return options;
}

Bytes StateBytesOf(ModelState& state) {
  return Bytes(static_cast<int64_t>(state.weights().size_bytes() + state.gradients().size_bytes() +
                                    state.first_moments().size_bytes() + state.second_moments().size_bytes()));
}

// An error that the communicator gives when another rank is gone, silent or gave up.
bool IsPeerLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// The steps from `first` on, with their checkpoints.
absl::Status Train(const RankConfig& config, Engine& engine, CheckpointWriter& checkpoints, ReportFile& reports) {
  const RealClock clock;
  const int64_t steps = config.spec.train.steps;
  const int64_t every_steps = config.spec.checkpoint.every_steps;
  Nanos checkpoint_time;
  for (int64_t step = std::max<int64_t>(config.resume_step, 0); step < steps; ++step) {
    LYNX_ASSIGN_OR_RETURN(StepReport report, engine.RunStep(step));
    report.checkpoint = std::exchange(checkpoint_time, Nanos(0));
    reports.Append(report);
    const int64_t done = step + 1;
    if (done != steps && (every_steps == 0 || done % every_steps != 0)) continue;
    const Nanos begin = clock.Monotonic();
    LYNX_RETURN_IF_ERROR(checkpoints.Write(done));
    checkpoint_time = clock.Monotonic() - begin;
  }
  reports.Append(RankDone{.steps = steps});
  return absl::OkStatus();
}

// Everything that follows the meeting of the peers. An error of this rank's own must reach them: see Run.
absl::Status RunConnected(const RankConfig& config, Backend& backend, const Dataset& dataset,
                          Communicator& communicator, ReportFile& reports) {
  const RankCoordinates coordinates = CoordinatesOf(config.context.layout, config.rank);
  LYNX_ASSIGN_OR_RETURN(ModelState state,
                        ModelState::Create(config.context, coordinates.tp, config.spec.train.seed, backend));
  if (config.resume_step >= 0) {
    LYNX_RETURN_IF_ERROR(
        LoadCheckpoint(config.checkpoint_directory, config.resume_step, config.context, coordinates.tp, state));
  }
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.context = config.context,
                                                                              .rank = config.rank,
                                                                              .program = config.program,
                                                                              .arena = config.arena,
                                                                              .train = config.spec.train},
                                                                             backend, communicator, state, dataset));
  reports.Append(RankReady{.next_step = std::max<int64_t>(config.resume_step, 0),
                           .arena = engine->arena(),
                           .states = StateBytesOf(state),
                           .backend = backend.Name()});
  CheckpointWriter checkpoints(config, communicator, state, reports);
  return Train(config, *engine, checkpoints, reports);
}

absl::Status Run(const RankConfig& config, int listen_fd, ReportFile& reports, Cancellation& cancellation) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(config.threads);
  LYNX_ASSIGN_OR_RETURN(
      const std::unique_ptr<Dataset> dataset,
      OpenDataset(config.spec.data, config.context.model.seq, config.context.model.vocab, config.spec.train.seed));
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, ConnectTcp(OptionsOf(config, listen_fd)));
  const Attachment attachment(cancellation, *communicator);
  const absl::Status status = RunConnected(config, *backend, *dataset, *communicator, reports);
  if (!status.ok()) communicator->Abort(Annotate(status, absl::StrCat("rank ", config.rank)));
  return status;
}

}  // namespace

int RunRank(const RankConfig& config, int listen_fd, ReportFile& reports, Cancellation& cancellation) {
  const absl::Status status = Run(config, listen_fd, reports, cancellation);
  if (status.ok()) return kRankExitOk;
  if (cancellation.requested()) return kRankExitCancelled;
  const RankFailure failure{.reason = std::string(status.message()), .peer_lost = IsPeerLoss(status)};
  std::fprintf(stderr, "rank %d: %s\n", config.rank, failure.reason.c_str());
  reports.Append(failure);
  return failure.peer_lost ? kRankExitPeerLost : kRankExitFailure;
}

}  // namespace lynx
