#include "server/controller/jobs/rank_events.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "planner/report/step_trace.h"

namespace lynx::server {
namespace {

// Up to this skew, the speeds of ranks with experts are compared.
constexpr double kEvenLoad = 1.1;
constexpr char kForgotten[] = "its process is gone: the worker daemon or the machine restarted without it";

// Says whether the ranks' connections are encrypted; "" if they are not.
std::string EncryptionText(RankEncryption encryption, DeviceKind kind) {
  if (encryption == RankEncryption::kOff) return "";
  return kind == DeviceKind::kCuda && encryption == RankEncryption::kExceptNccl
             ? "; their connections are encrypted, except those of NCCL"
             : "; their connections are encrypted";
}

}  // namespace

void RankEvents::OnMessage(const RankMessage& message) {
  LiveJob* job = jobs_.Find(message.key.job);
  LYNX_CHECK(job != nullptr && job->record.generation == message.key.generation);
  LiveRank& live = job->generation.ranks[static_cast<size_t>(message.key.rank)];
  if (message.sequence <= live.received) return;
  live.received = message.sequence;
  FoldMessage(*job, message.key.rank, message);
}

void RankEvents::FoldMessage(LiveJob& job, int32_t rank, const RankMessage& message) {
  const size_t r = static_cast<size_t>(rank);
  if (const auto* started = std::get_if<RankReady>(&message.report)) {
    FoldStarted(job, rank, *started);
  } else if (const auto* step = std::get_if<StepReport>(&message.report)) {
    FoldStep(job, rank, *step);
  } else if (const auto* skipped = std::get_if<StepSkipped>(&message.report)) {
    step_.AddEvent(job, EventKind::kStepSkipped, absl::StrCat("step ", skipped->step, " changed no weight: ", skipped->reason));
    step_.Touch(job);
  } else if (const auto* evaluation = std::get_if<EvaluationReport>(&message.report)) {
    FoldEvaluation(job, *evaluation);
  } else if (const auto* trace = std::get_if<TraceReport>(&message.report)) {
    FoldTrace(job, rank, *trace);
  } else if (const auto* checkpoint = std::get_if<CheckpointReport>(&message.report)) {
    FoldCheckpoint(job, *checkpoint);
  } else if (const auto* unsaved = std::get_if<CheckpointFailure>(&message.report)) {
    step_.AddEvent(job, EventKind::kCheckpointFailed,
                   absl::StrCat("no checkpoint of step ", unsaved->step, ": ", unsaved->reason,
                                unsaved->step < job.record.spec->train.steps
                                    ? "; training goes on"
                                    : "; it is the last one, so the ranks keep what they have and try again for a while"));
    step_.Touch(job);
  } else if (const auto* copies = std::get_if<CopiesNotice>(&message.report)) {
    step_.AddEvent(job, EventKind::kCopies, copies->reason);
    step_.Touch(job);
  } else if (const auto* checked = std::get_if<NodeCheckReport>(&message.report)) {
    FoldCheck(job, *checked);
  } else if (std::holds_alternative<RankDone>(message.report)) {
    job.record.ranks[r].finished = true;
    job.generation.ranks[r].finished_at = step_.now();
    step_.Touch(job);
    CheckSucceeded(job);
  } else if (std::holds_alternative<RankYielded>(message.report)) {
    OnGaveWay(job, rank);
  } else if (const auto* fault = std::get_if<RankFailure>(&message.report)) {
    Failed(job, rank, *fault, Source::kRank);
  }
}

// Notes that the rank has started, and the first step that it will train. The ranks resume from the newest checkpoint on disk.
// This server may not know of that checkpoint yet, so the first step may be beyond the recorded progress.
void RankEvents::FoldStarted(LiveJob& job, int32_t rank, const RankReady& started) {
  JobRecord& record = job.record;
  job.generation.ranks[static_cast<size_t>(rank)].started = true;
  job.generation.statistics.AddStarted(rank, started);
  job.generation.first_step = started.next_step;
  job.generation.from_copies = started.from_copies;
  record.progress.steps_done = std::max(record.progress.steps_done, started.next_step);
  record.best_steps = std::max(record.best_steps, started.next_step);
  record.base_steps = std::max(record.base_steps, started.next_step);
  step_.Touch(job);
  CheckRunning(job);
}

void RankEvents::FoldStep(LiveJob& job, int32_t rank, const StepReport& step) {
  JobRecord& record = job.record;
  job.generation.ranks[static_cast<size_t>(rank)].started = true;
  job.generation.statistics.AddStep(rank, step, step_.wall(), record.progress);
  // If the load of experts is uneven, a rank may compute for a long time only because it has many rows. So this time
  // does not tell whether its node is slow.
  const bool uneven = step.experts.any() && step.experts.skew > kEvenLoad;
  if (!uneven) {
    job.drift.speed.Add(rank, step.forward + step.backward + step.weight + step.recompute_hidden + step.recompute_exposed);
  }
  job.drift.links.Add(rank, step.duration, step.links);
  // All ranks report the same skew.
  if (rank == 0 && step.experts.any()) job.drift.skew.Add(step.experts.skew);
  job.replanning.steps_done = step.step + 1;
  const bool new_step = step.step + 1 > record.best_steps;
  record.best_steps = std::max(record.best_steps, step.step + 1);
  step_.Emit(StepRecorded{record.id, rank, CoordinatesOf(job.plan->layout, rank).stage, new_step, step});
  step_.Notify(record.id);
  // A single step is not worth a write to the store. If the server ends before the next write, the ranks report the step again.
  if (step_.now() - job.persisted >= options_.progress_interval) {
    step_.Touch(job);
  } else if (job.persist_at == Nanos(0)) {
    job.persist_at = job.persisted + options_.progress_interval;
  }
  CheckRunning(job);
}

void RankEvents::FoldEvaluation(LiveJob& job, const EvaluationReport& evaluation) {
  job.record.progress.validation_loss = evaluation.loss;
  job.record.progress.validation_step = evaluation.step;
  step_.Emit(EvaluationRecorded{job.record.id, evaluation.loss});
  step_.Touch(job);
}

void RankEvents::FoldTrace(LiveJob& job, int32_t rank, const TraceReport& trace) {
  if (job.plan == nullptr) return;
  const RankCoordinates coordinates = CoordinatesOf(job.plan->layout, rank);
  if (!TracesForItsStage(coordinates)) return;
  auto stages = job.generation.traces.Add(static_cast<size_t>(coordinates.stage), trace);
  if (!stages.has_value()) return;
  step_.Emit(InsertTrace{job.record.id,
                         {.generation = job.record.generation,
                          .step = trace.step,
                          .plan_digest = job.record.plan_digest,
                          .stages = *std::move(stages)}});
}

void RankEvents::FoldCheckpoint(LiveJob& job, const CheckpointReport& checkpoint) {
  step_.Touch(job);
  step_.Emit(
      InsertCheckpoint{job.record.id, job.record.generation, checkpoint.step, checkpoint.path, checkpoint.bytes, step_.wall()});
  step_.AddEvent(job, EventKind::kCheckpoint,
                 absl::StrCat("step ", checkpoint.step, ": ", checkpoint.path, " (", FormatBytes(checkpoint.bytes), ")"));
  if (checkpoint.step < job.record.checkpoint_step) return;
  job.record.checkpoint_step = checkpoint.step;
  job.replanning.checkpoint = checkpoint.bytes;
  job.record.checkpoint_path = checkpoint.path;
}

void RankEvents::FoldCheck(LiveJob& job, const NodeCheckReport& checked) {
  job.record.check_due = false;
  std::string text =
      absl::StrCat("the check passed in ", FormatDuration(checked.duration), ": ", checked.devices,
                   checked.devices == 1 ? " device, " : " devices, ", checked.links, checked.links == 1 ? " link" : " links");
  if (checked.links > 0) absl::StrAppend(&text, ", the slowest ", FormatBytes(Bytes(checked.slowest_bytes_per_second)), "/s");
  step_.AddEvent(job, EventKind::kNodeCheck, text);
  step_.Touch(job);
}

void RankEvents::Observe(LiveJob& job, int32_t rank, const RankObservation& seen) {
  LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  switch (seen.phase) {
    case RankPhase::kListening: {
      const bool had_process = live.phase == RankPhase::kRunning || live.phase == RankPhase::kExited || live.started;
      const bool moved = record.port > 0 && (record.port != seen.port || record.host != seen.host);
      if (had_process && !record.finished) {
        live.forgotten = true;
        Failed(job, rank, {kForgotten}, Source::kDaemon);
      } else if (moved && !record.finished) {
        Failed(job, rank, {"its worker daemon restarted while the job was starting"}, Source::kDaemon);
      } else {
        live.phase = RankPhase::kListening;
      }
      break;
    }
    case RankPhase::kRunning: live.phase = RankPhase::kRunning; break;
    case RankPhase::kExited:
      if (live.phase != RankPhase::kExited) ObserveExit(job, rank, seen);
      break;
  }
}

void RankEvents::ObserveMissing(LiveJob& job, const LiveNode& node) {
  for (size_t r = 0; r < job.generation.ranks.size() && !IsStopping(job); ++r) {
    const RankRecord& record = job.record.ranks[r];
    LiveRank& live = job.generation.ranks[r];
    const bool was_there = live.phase.has_value() || live.started || record.port > 0;
    const RankKey key{job.record.id, job.record.generation, static_cast<int32_t>(r)};
    if (record.where.node != node.name || !was_there || record.finished || node.ranks.contains(key)) continue;
    live.forgotten = true;
    Failed(job, key.rank, {kForgotten}, Source::kDaemon);
  }
}

void RankEvents::ObserveExit(LiveJob& job, int32_t rank, const RankObservation& seen) {
  LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  live.phase = RankPhase::kExited;
  live.exited_at = step_.now();
  live.exit_code = seen.exit_code;
  if (seen.exit_code == kRankExitYielded || live.gave_way) {
    if (!live.gave_way) OnGaveWay(job, rank);
    return;
  }
  if (seen.exit_code != kRankExitOk && !job.record.ranks[static_cast<size_t>(rank)].finished) {
    Failed(job, rank, {seen.reason, seen.peer_lost || seen.exit_code == kRankExitPeerLost, seen.cause}, Source::kDaemon);
  }
}

// A failure is usually reported twice: by the rank itself, and by its daemon when the process exits. The first report is kept,
// but the rank's own report replaces an earlier report of the daemon.
void RankEvents::Failed(LiveJob& job, int32_t rank, const RankFailure& fault, Source source) {
  LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  const bool reported = source == Source::kRank;
  if (live.gave_way || (live.failed && !(reported && !live.fault_reported))) return;
  if (!live.failed) {
    live.during_stop = IsStopping(job);
    live.order = ++job.generation.failures;
  }
  live.failed = true;
  live.fault_reported = reported;
  live.peer_lost = fault.peer_lost;
  live.cause = fault.cause;
  live.peers = fault.peers;
  live.reason = fault.reason;
  if (IsStopping(job)) return;
  if (!fault.peer_lost) {
    stopping_.BeginStop(job, StopKind::kRestart, EventKind::kRankLost, failures_.FailureText(job, rank));
  } else if (job.generation.stop_deadline == Nanos(0)) {
    job.generation.stop_deadline = step_.now() + options_.culprit_grace;
  }
}

// Called when the rank has written the checkpoint and ends. Its peers do the same unless something prevents them. This server
// may not have asked for this: an earlier server asked, or the request has been taken back since. Even then the rank has left,
// so the generation ends.
void RankEvents::OnGaveWay(LiveJob& job, int32_t rank) {
  job.generation.ranks[static_cast<size_t>(rank)].gave_way = true;
  if (IsStopping(job)) return;
  job.generation.yield_deadline = step_.now() + options_.exit_grace;
  if (GivesWay(job.record.stop)) return;
  stopping_.BeginStop(job, StopKind::kReplan, std::nullopt,
                      absl::StrCat("rank ", rank, " on node ", job.record.ranks[static_cast<size_t>(rank)].where.node.value,
                                   " gave way to another plan"));
}

void RankEvents::CheckListening(LiveJob& job) {
  JobRecord& record = job.record;
  if (record.state != JobState::kStarting || record.stop != StopKind::kNone || job.generation.peers != nullptr) return;
  std::vector<RankAddress> peers;
  for (size_t r = 0; r < record.ranks.size(); ++r) {
    const LiveNode& node = nodes_.At(record.ranks[r].where.node);
    const auto seen = node.ranks.find({record.id, record.generation, static_cast<int32_t>(r)});
    if (seen == node.ranks.end() || seen->second.phase == RankPhase::kExited || seen->second.port == 0) return;
    peers.push_back({seen->second.host, seen->second.port});
  }
  for (size_t r = 0; r < peers.size(); ++r) {
    record.ranks[r].host = peers[r].host;
    record.ranks[r].port = peers[r].port;
  }
  job.generation.peers = std::make_shared<const std::vector<RankAddress>>(std::move(peers));
  job.generation.listen_deadline = Nanos(0);
  step_.Touch(job);
  step_.TellNodesOf(job);
}

void RankEvents::CheckRunning(LiveJob& job) {
  JobRecord& record = job.record;
  if (record.state != JobState::kStarting || record.stop != StopKind::kNone) return;
  const bool ready =
      std::all_of(job.generation.ranks.begin(), job.generation.ranks.end(), [](const LiveRank& r) { return r.started; });
  const bool stepped = record.best_steps > record.base_steps;
  if (!ready && !stepped) return;
  if (record.started == Nanos(0)) record.started = step_.wall();
  job.replanning.start_took = step_.now() - job.replanning.began;
  job.replanning.not_before = step_.now() + options_.replan_after;
  const int64_t first_step = job.generation.first_step >= 0 ? job.generation.first_step : record.resume_step;
  if (job.generation.from_copies) {
    step_.AddEvent(job, EventKind::kResumed,
                   absl::StrCat("goes on at step ", first_step, ", from copies of the states in the memory of nodes"));
  }
  const std::string from = job.generation.from_copies ? absl::StrCat("copies of step ", first_step, " in memory")
                           : first_step > 0           ? absl::StrCat("the checkpoint of step ", first_step)
                           : record.spec->checkpoint.from.empty()
                               ? "initial weights"
                               : absl::StrCat("the weights in ", record.spec->checkpoint.from);
  step_.SetState(job, JobState::kRunning, EventKind::kRunning,
                 absl::StrCat("all ranks run, from ", from, EncryptionText(options_.encryption, record.device_kind)));
}

void RankEvents::CheckSucceeded(LiveJob& job) {
  JobRecord& record = job.record;
  const bool runs = record.state == JobState::kRunning || record.state == JobState::kStarting;
  if (!runs || IsStopping(job)) return;
  for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
    if (options_.Makes(Mistake::kSucceedEarly) && record.best_steps >= record.spec->train.steps) break;
    if (!IsOver(job, static_cast<int32_t>(r))) return;
  }
  generations_.EndJob(job, JobState::kSucceeded, EventKind::kSucceeded,
                      absl::StrCat(record.progress.steps_done, " steps done; last loss ", record.progress.loss));
}

// True if the rank has done its work and will send no more reports.
bool RankEvents::IsOver(const LiveJob& job, int32_t rank) const {
  const LiveRank& live = job.generation.ranks[static_cast<size_t>(rank)];
  if (job.record.ranks[static_cast<size_t>(rank)].finished) {
    return stopping_.RankGone(job, rank) || step_.now() - live.finished_at >= options_.exit_grace;
  }
  return live.phase == RankPhase::kExited && live.exit_code == kRankExitOk && !live.failed &&
         step_.now() - live.exited_at >= options_.exit_grace;
}

void RankEvents::CheckDeadlines(LiveJob& job) {
  const auto due = [this](Nanos deadline) { return deadline != Nanos(0) && step_.now() >= deadline; };
  if (due(job.generation.stop_deadline)) {
    // The deadline is over, and the rank at fault has not reported its failure. So people are told the failure of the rank that
    // failed first.
    const auto first = std::min_element(
        job.generation.ranks.begin(), job.generation.ranks.end(),
        [](const LiveRank& a, const LiveRank& b) { return std::pair(!a.failed, a.order) < std::pair(!b.failed, b.order); });
    const std::string seen = failures_.FailureText(job, static_cast<int32_t>(first - job.generation.ranks.begin()));
    // Every running rank notices when a peer ends, and then fails too. So if only a few ranks have not reported a failure,
    // those ranks probably hang.
    const auto failed =
        std::count_if(job.generation.ranks.begin(), job.generation.ranks.end(), [](const LiveRank& r) { return r.failed; });
    std::vector<std::string> silent;
    for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
      if (job.generation.ranks[r].failed || job.generation.ranks[r].phase != RankPhase::kRunning) continue;
      silent.push_back(RankText(job.record, static_cast<int32_t>(r)));
    }
    stopping_.BeginStop(
        job, StopKind::kRestart, EventKind::kRankLost,
        silent.empty() || static_cast<std::ptrdiff_t>(silent.size()) > failed
            ? seen
            : absl::StrCat(absl::StrJoin(silent, ", "), " neither went on nor ended when others gave up: ", seen));
    return;
  }
  if (due(job.generation.listen_deadline)) {
    size_t r = 0;
    while (r + 1 < job.generation.ranks.size() && job.generation.ranks[r].phase.has_value()) ++r;
    stopping_.BeginStop(job, StopKind::kRestart, EventKind::kRankLost,
                        absl::StrCat(RankText(job.record, static_cast<int32_t>(r)), " did not come up within ",
                                     FormatDuration(options_.listen_timeout)));
  }
}

}  // namespace lynx::server
