// Generations: ranks start, run, report, fail, stop and start again. See controller.h.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "planner/report/step_trace.h"
#include "server/controller/controller.h"

namespace lynx {
namespace {

constexpr size_t kLogLinesInReason = 3;
constexpr char kForgotten[] = "its process is gone: the worker daemon or the machine restarted without it";

std::string RankText(const JobRecord& record, int32_t rank) {
  return absl::StrCat("rank ", rank, " on node ", record.ranks[static_cast<size_t>(rank)].where.node.value);
}

// True for a rank that was told to end: either it handled SIGTERM itself, or SIGTERM or SIGKILL ended it.
bool LooksStopped(int32_t exit_code) {
  return exit_code == kRankExitCancelled || exit_code == RankExitOfSignal(SIGTERM) || exit_code == RankExitOfSignal(SIGKILL);
}

}  // namespace

void Controller::OnRankMessage(const RankMessage& message) {
  Job* job = FindJob(message.key.job);
  LYNX_CHECK(job != nullptr && job->record.generation == message.key.generation);
  LiveRank& live = job->ranks[static_cast<size_t>(message.key.rank)];
  if (message.sequence <= live.received) return;
  live.received = message.sequence;
  FoldMessage(*job, message.key.rank, message);
}

void Controller::FoldMessage(Job& job, int32_t rank, const RankMessage& message) {
  const size_t r = static_cast<size_t>(rank);
  if (const auto* started = std::get_if<RankReady>(&message.report)) {
    FoldStarted(job, rank, *started);
  } else if (const auto* step = std::get_if<StepReport>(&message.report)) {
    FoldStep(job, rank, *step);
  } else if (const auto* skipped = std::get_if<StepSkipped>(&message.report)) {
    AddEvent(job, EventKind::kStepSkipped, absl::StrCat("step ", skipped->step, " changed no weight: ", skipped->reason));
    Touch(job);
  } else if (const auto* evaluation = std::get_if<EvaluationReport>(&message.report)) {
    FoldEvaluation(job, *evaluation);
  } else if (const auto* trace = std::get_if<TraceReport>(&message.report)) {
    FoldTrace(job, rank, *trace);
  } else if (const auto* checkpoint = std::get_if<CheckpointReport>(&message.report)) {
    FoldCheckpoint(job, *checkpoint);
  } else if (const auto* unsaved = std::get_if<CheckpointFailure>(&message.report)) {
    AddEvent(job, EventKind::kCheckpointFailed,
             absl::StrCat("no checkpoint of step ", unsaved->step, ": ", unsaved->reason,
                          unsaved->step < job.record.spec->train.steps
                              ? "; training goes on"
                              : "; it is the last one, so the ranks keep what they have and try again for a while"));
    Touch(job);
  } else if (const auto* copies = std::get_if<CopiesNotice>(&message.report)) {
    AddEvent(job, EventKind::kCopies, copies->reason);
    Touch(job);
  } else if (const auto* checked = std::get_if<NodeCheckReport>(&message.report)) {
    FoldCheck(job, *checked);
  } else if (std::holds_alternative<RankDone>(message.report)) {
    job.record.ranks[r].finished = true;
    job.ranks[r].finished_at = now_;
    Touch(job);
    CheckSucceeded(job);
  } else if (std::holds_alternative<RankYielded>(message.report)) {
    OnGaveWay(job, rank);
  } else if (const auto* fault = std::get_if<RankFailure>(&message.report)) {
    RankFailed(job, rank, *fault, true);
  }
}

// The ranks resume from the newest existing checkpoint. This server may not know of that checkpoint yet.
void Controller::FoldStarted(Job& job, int32_t rank, const RankReady& started) {
  JobRecord& record = job.record;
  job.ranks[static_cast<size_t>(rank)].started = true;
  job.statistics.AddStarted(rank, started);
  job.first_step = started.next_step;
  job.from_copies = started.from_copies;
  record.progress.steps_done = std::max(record.progress.steps_done, started.next_step);
  record.best_steps = std::max(record.best_steps, started.next_step);
  record.base_steps = std::max(record.base_steps, started.next_step);
  Touch(job);
  CheckRunning(job);
}

void Controller::FoldStep(Job& job, int32_t rank, const StepReport& step) {
  JobRecord& record = job.record;
  job.ranks[static_cast<size_t>(rank)].started = true;
  job.statistics.AddStep(rank, step, wall_, record.progress);
  job.speed.Add(rank, step.forward + step.backward + step.weight + step.recompute_hidden + step.recompute_exposed);
  job.links.Add(rank, step.duration, step.links);
  job.replanning.steps_done = step.step + 1;
  const bool new_step = step.step + 1 > record.best_steps;
  record.best_steps = std::max(record.best_steps, step.step + 1);
  effects_.push_back(StepRecorded{record.id, rank, CoordinatesOf(job.plan->layout, rank).stage, new_step, step});
  notices_[record.id];
  // A single step is not worth a write to the store. If the server ends, the ranks report the step again.
  if (now_ - job.persisted >= options_.progress_interval) {
    Touch(job);
  } else if (job.persist_at == Nanos(0)) {
    job.persist_at = job.persisted + options_.progress_interval;
  }
  CheckRunning(job);
}

void Controller::FoldEvaluation(Job& job, const EvaluationReport& evaluation) {
  job.record.progress.validation_loss = evaluation.loss;
  job.record.progress.validation_step = evaluation.step;
  effects_.push_back(EvaluationRecorded{job.record.id, evaluation.loss});
  Touch(job);
}

void Controller::FoldTrace(Job& job, int32_t rank, const TraceReport& trace) {
  if (job.plan == nullptr) return;
  const RankCoordinates coordinates = CoordinatesOf(job.plan->layout, rank);
  if (!TracesForItsStage(coordinates)) return;
  auto stages = job.traces.Add(static_cast<size_t>(coordinates.stage), trace);
  if (!stages.has_value()) return;
  effects_.push_back(InsertTrace{job.record.id,
                                 {.generation = job.record.generation,
                                  .step = trace.step,
                                  .plan_digest = job.record.plan_digest,
                                  .stages = *std::move(stages)}});
}

void Controller::FoldCheckpoint(Job& job, const CheckpointReport& checkpoint) {
  Touch(job);
  effects_.push_back(
      InsertCheckpoint{job.record.id, job.record.generation, checkpoint.step, checkpoint.path, checkpoint.bytes, wall_});
  AddEvent(job, EventKind::kCheckpoint,
           absl::StrCat("step ", checkpoint.step, ": ", checkpoint.path, " (", FormatBytes(checkpoint.bytes), ")"));
  if (checkpoint.step < job.record.checkpoint_step) return;
  job.record.checkpoint_step = checkpoint.step;
  job.replanning.checkpoint = checkpoint.bytes;
  job.record.checkpoint_path = checkpoint.path;
}

// Processes what the worker reports about a rank of the current generation that should run on its node.
void Controller::ObserveRank(Job& job, int32_t rank, const RankObservation& seen) {
  LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  switch (seen.phase) {
    case RankPhase::kListening: {
      const bool had_process = live.phase == RankPhase::kRunning || live.phase == RankPhase::kExited || live.started;
      const bool moved = record.port > 0 && (record.port != seen.port || record.host != seen.host);
      if (had_process && !record.finished) {
        live.forgotten = true;
        RankFailed(job, rank, {kForgotten}, false);
      } else if (moved && !record.finished) {
        RankFailed(job, rank, {"its worker daemon restarted while the job was starting"}, false);
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

// A worker lists every rank from the time it first should run it. If a rank is missing now, it was lost with the daemon's state
// or with the machine, even if the worker has begun to start it again.
void Controller::ObserveMissing(Job& job, const Node& node) {
  for (size_t r = 0; r < job.ranks.size() && !IsStopping(job); ++r) {
    const RankRecord& record = job.record.ranks[r];
    LiveRank& live = job.ranks[r];
    const bool was_there = live.phase.has_value() || live.started || record.port > 0;
    const RankKey key{job.record.id, job.record.generation, static_cast<int32_t>(r)};
    if (record.where.node != node.name || !was_there || record.finished || node.ranks.contains(key)) continue;
    live.forgotten = true;
    RankFailed(job, key.rank, {kForgotten}, false);
  }
}

void Controller::ObserveExit(Job& job, int32_t rank, const RankObservation& seen) {
  LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  live.phase = RankPhase::kExited;
  live.exited_at = now_;
  live.exit_code = seen.exit_code;
  if (seen.exit_code == kRankExitYielded || live.gave_way) {
    if (!live.gave_way) OnGaveWay(job, rank);
    return;
  }
  if (seen.exit_code != kRankExitOk && !job.record.ranks[static_cast<size_t>(rank)].finished) {
    RankFailed(job, rank, {seen.reason, seen.peer_lost || seen.exit_code == kRankExitPeerLost, seen.cause}, false);
  }
}

// A failure is usually reported twice: by the rank itself, and by its exit. The first report counts, but the rank's own report
// replaces an earlier exit.
void Controller::RankFailed(Job& job, int32_t rank, const RankFailure& fault, bool reported) {
  LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  if (live.gave_way || (live.failed && !(reported && !live.fault_reported))) return;
  if (!live.failed) {
    live.during_stop = IsStopping(job);
    live.order = ++job.failures;
  }
  live.failed = true;
  live.fault_reported = reported;
  live.peer_lost = fault.peer_lost;
  live.cause = fault.cause;
  live.peers = fault.peers;
  live.reason = fault.reason;
  if (IsStopping(job)) return;
  if (!fault.peer_lost) {
    BeginStop(job, StopKind::kRestart, EventKind::kRankLost, FailureText(job, rank));
  } else if (job.stop_deadline == Nanos(0)) {
    job.stop_deadline = now_ + options_.culprit_grace;
  }
}

std::string Controller::FailureText(const Job& job, int32_t rank) const {
  const LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  std::string text = RankText(job.record, rank);
  if (live.fault_reported) return absl::StrCat(text, ": ", live.reason);
  if (live.exit_code > 128) {
    absl::StrAppend(&text, " was killed by signal ", live.exit_code - 128);
  } else if (!live.reason.empty()) {
    absl::StrAppend(&text, ": ", live.reason);
  } else {
    absl::StrAppend(&text, " ended with exit code ", live.exit_code);
  }
  const std::vector<std::string> lines = logs_.LastOf({job.record.id, job.record.generation, rank}, kLogLinesInReason);
  if (!lines.empty()) absl::StrAppend(&text, "; its last lines: ", absl::StrJoin(lines, " | "));
  return text;
}

// The rank whose failure explains the others; nullptr: all failed ranks only lost a peer.
const Controller::LiveRank* Controller::Culprit(const Job& job, int32_t& rank) const {
  const LiveRank* best = nullptr;
  const auto rank_of = [](const LiveRank& live) { return std::pair(live.during_stop, live.order); };
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const LiveRank& live = job.ranks[r];
    if (!live.failed || live.peer_lost) continue;
    if (live.during_stop && !live.fault_reported && LooksStopped(live.exit_code)) continue;
    if (best != nullptr && rank_of(*best) < rank_of(live)) continue;
    best = &live;
    rank = static_cast<int32_t>(r);
  }
  return best;
}

void Controller::CheckListening(Job& job) {
  JobRecord& record = job.record;
  if (record.state != JobState::kStarting || record.stop != StopKind::kNone || job.peers != nullptr) return;
  std::vector<RankAddress> peers;
  for (size_t r = 0; r < record.ranks.size(); ++r) {
    const Node& node = NodeOf(record.ranks[r].where.node);
    const auto seen = node.ranks.find({record.id, record.generation, static_cast<int32_t>(r)});
    if (seen == node.ranks.end() || seen->second.phase == RankPhase::kExited || seen->second.port == 0) return;
    peers.push_back({seen->second.host, seen->second.port});
  }
  for (size_t r = 0; r < peers.size(); ++r) {
    record.ranks[r].host = peers[r].host;
    record.ranks[r].port = peers[r].port;
  }
  job.peers = std::make_shared<const std::vector<RankAddress>>(std::move(peers));
  job.listen_deadline = Nanos(0);
  Touch(job);
  TouchNodesOf(job);
}

void Controller::CheckRunning(Job& job) {
  JobRecord& record = job.record;
  if (record.state != JobState::kStarting || record.stop != StopKind::kNone) return;
  const bool ready = std::all_of(job.ranks.begin(), job.ranks.end(), [](const LiveRank& r) { return r.started; });
  const bool stepped = record.best_steps > record.base_steps;
  if (!ready && !stepped) return;
  if (record.started == Nanos(0)) record.started = wall_;
  job.replanning.start_took = now_ - job.replanning.began;
  job.replanning.not_before = now_ + options_.replan_after;
  const int64_t first_step = job.first_step >= 0 ? job.first_step : record.resume_step;
  if (job.from_copies) {
    AddEvent(job, EventKind::kResumed,
             absl::StrCat("goes on at step ", first_step, ", from copies of the states in the memory of nodes"));
  }
  SetState(job, JobState::kRunning, EventKind::kRunning,
           job.from_copies  ? absl::StrCat("all ranks run, from copies of step ", first_step, " in memory")
           : first_step > 0 ? absl::StrCat("all ranks run, from the checkpoint of step ", first_step)
           : record.spec->checkpoint.from.empty()
               ? "all ranks run, from initial weights"
               : absl::StrCat("all ranks run, from the weights in ", record.spec->checkpoint.from));
}

bool Controller::RankGone(const Job& job, int32_t rank) const {
  const auto found = nodes_.find(job.record.ranks[static_cast<size_t>(rank)].where.node);
  LYNX_CHECK(found != nodes_.end());
  const Node& node = found->second;
  if (node.lost) return true;
  if (Makes(Mistake::kStartBesideOldRanks) && job.stopping_since != Nanos(0) && now_ > job.stopping_since) return true;
  const StopKind stop = job.record.stop;
  const bool next_begins = stop != StopKind::kCancel && stop != StopKind::kTimeLimit &&
                           stop != StopKind::kLeave;  // in these cases the fence keeps out whatever remains of this generation
  const bool stops = next_begins && job.stopping_since != Nanos(0);
  const auto ended = [&](const Node& at, int32_t r) {
    if (!at.heard) return false;
    const auto seen = at.ranks.find({job.record.id, job.record.generation, r});
    return seen == at.ranks.end() || seen->second.phase == RankPhase::kExited;
  };
  if (stops && !node.worker_attached() && AwayFor(node, options_.stop_timeout, job.stopping_since)) {
    // The rank can do no step without its peers, so one ended peer is enough. If all ranks may still be running, cut off
    // together, only the loss of the node ends the wait.
    for (size_t r = 0; r < job.record.ranks.size(); ++r) {
      const Node& at = nodes_.at(job.record.ranks[r].where.node);
      if (at.worker_attached() && ended(at, static_cast<int32_t>(r))) return true;
    }
  }
  return ended(node, rank);
}

// True if the rank has done its work and will send nothing more.
bool Controller::RankOver(const Job& job, int32_t rank) const {
  const LiveRank& live = job.ranks[static_cast<size_t>(rank)];
  if (job.record.ranks[static_cast<size_t>(rank)].finished) {
    return RankGone(job, rank) || now_ - live.finished_at >= options_.exit_grace;
  }
  return live.phase == RankPhase::kExited && live.exit_code == kRankExitOk && !live.failed &&
         now_ - live.exited_at >= options_.exit_grace;
}

void Controller::CheckSucceeded(Job& job) {
  JobRecord& record = job.record;
  const bool runs = record.state == JobState::kRunning || record.state == JobState::kStarting;
  if (!runs || IsStopping(job)) return;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    if (Makes(Mistake::kSucceedEarly) && record.best_steps >= record.spec->train.steps) break;
    if (!RankOver(job, static_cast<int32_t>(r))) return;
  }
  EndJob(job, JobState::kSucceeded, EventKind::kSucceeded,
         absl::StrCat(record.progress.steps_done, " steps done; last loss ", record.progress.loss));
}

// Tells the nodes to stop the ranks of this generation. EndGeneration continues when all are gone.
void Controller::BeginStop(Job& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason) {
  LYNX_CHECK(!IsStopping(job) && kind != StopKind::kNone);
  if (kind != StopKind::kReplan) EndReplanning(job);
  job.record.stop = kind;
  job.record.stop_reason = reason;
  job.record.reason = absl::StrCat("stopping: ", reason);
  job.listen_deadline = Nanos(0);
  // Ranks that were asked to give way may fail instead; that is noticed like any failure.
  if (!GivesWay(kind)) {
    job.stop_deadline = job.yield_deadline = Nanos(0);
    job.stopping_since = now_;
  }
  if (event_kind) AddEvent(job, *event_kind, reason);
  notices_[job.record.id];
  Touch(job);
  TouchNodesOf(job);
  CheckStopped(job);
}

void Controller::CheckStopped(Job& job) {
  if (IsFinal(job.record.state) || job.record.stop == StopKind::kNone) return;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    if (!RankGone(job, static_cast<int32_t>(r))) return;
  }
  EndGeneration(job);
}

void Controller::EndGeneration(Job& job) {
  JobRecord& record = job.record;
  if (record.stop == StopKind::kCancel) return EndJob(job, JobState::kCancelled, EventKind::kCancelled, record.stop_reason);
  const std::string with_checkpoint = absl::StrCat(
      record.stop_reason, record.checkpoint_step < 0
                              ? "; it wrote no checkpoint"
                              : absl::StrCat("; its newest checkpoint, of step ", record.checkpoint_step, ", is ",
                                             record.checkpoint_path, ", from which another job can go on (checkpoint.from)"));
  // This also holds if a rank failed, or the job gave way for another reason, after it was cancelled.
  if (record.cancel_requested) {
    return EndJob(job, JobState::kCancelled, EventKind::kCancelled,
                  absl::StrCat(record.stop == StopKind::kLeave ? "" : "cancelled; ", with_checkpoint));
  }
  if (record.stop == StopKind::kTimeLimit) return EndJob(job, JobState::kFailed, EventKind::kFailed, with_checkpoint);
  if (record.stop == StopKind::kReplan) return ChangePlan(job);
  if (record.stop == StopKind::kMove) return StartAgain(job, EventKind::kMoving, record.stop_reason);
  if (record.stop == StopKind::kPreempt) {
    if (job.makes_room) ++record.preemptions;
    return Requeue(job, job.makes_room ? EventKind::kPreempted : EventKind::kHeld, record.stop_reason);
  }
  EndFailed(job);
}

// Handles the end of a generation in which a rank or a node failed.
void Controller::EndFailed(Job& job) {
  JobRecord& record = job.record;
  int32_t rank = 0;
  const LiveRank* culprit = Culprit(job, rank);
  if (culprit != nullptr) logs_.NoteFailure({record.id, record.generation, rank});
  const std::string reason = culprit != nullptr ? FailureText(job, rank) : record.stop_reason;
  const bool out_of_memory = culprit != nullptr && culprit->cause == FaultCause::kMemory;
  const bool fruitless = !out_of_memory && record.generation > Generation(1) && record.best_steps <= record.base_steps;
  const int32_t charge = record.restart_charge + (fruitless ? 2 : 1);
  if (job.restart_at == Nanos(0)) {  // otherwise this has been decided before, and the job only waits for the pause to end
    const std::vector<BadNode> bad = culprit != nullptr && IsOfCheck(culprit->cause) ? FoundBad(job) : std::vector<BadNode>();
    const Attributed attributed = culprit == nullptr ? Attributed{}
                                  : bad.empty()      ? Blame(job, rank)
                                                     : BlameFound(job, rank, bad);
    if (!MayGoOn(job, rank, culprit, attributed, reason)) return;
    NoteFailure(job, attributed.to);
    if (ExcludeFound(job, bad)) return Restart(job, reason);
    if (charge > record.spec->max_restarts) {
      record.restart_charge = charge;
      EndJob(job, JobState::kFailed, EventKind::kFailed,
             absl::StrCat(reason, "; after ", record.restarts, " restarts the budget, max_restarts ", record.spec->max_restarts,
                          ", is spent (a restart without a new step counts twice)"));
      return;
    }
  }
  if (!PauseIsOver(job, fruitless)) return;
  record.restart_charge = charge;
  if (out_of_memory) NoteMemoryEnds(job, rank);
  Restart(job, reason);
}

// False: the job has ended, because a restart would not help or the job's rules do not want one.
bool Controller::MayGoOn(Job& job, int32_t rank, const LiveRank* culprit, const Attributed& attributed,
                         const std::string& reason) {
  const JobRecord& record = job.record;
  const FailureRule* rule = culprit == nullptr ? nullptr : RuleFor(job, rank);
  const bool elsewhere = rule == nullptr && culprit != nullptr && culprit->cause == FaultCause::kPath && MayAllow(job, rank);
  const bool hopeless = rule == nullptr && culprit != nullptr && !elsewhere && WouldRefuseAgain(job, *culprit);
  const bool refused = rule != nullptr && rule->action == FailureAction::kFail;
  const bool again = rule == nullptr && attributed.again;
  if (hopeless || refused || again) {
    const std::string why =
        refused ? "; onFailure says that it is not to be tried again"
        : again ? absl::StrCat("; attributed to ", AttributionName(attributed.to), ": ", attributed.why, "; no restart helps")
                : "";
    EndJob(job, JobState::kFailed, EventKind::kFailed, absl::StrCat(reason, why));
    return false;
  }
  const auto exclude = [&](const std::string& why) {
    ExcludeNode(job, record.ranks[static_cast<size_t>(rank)].where.node, why);
  };
  if (rule != nullptr && rule->action == FailureAction::kExcludeNode) exclude(", as onFailure says");
  if (elsewhere) exclude(": another may let it use that path");
  return true;
}

bool Controller::PauseIsOver(Job& job, bool fruitless) {
  if (!fruitless) {
    job.fruitless = 0;
    return true;
  }
  if (job.restart_at == Nanos(0)) {
    Nanos pause = options_.restart_pause;
    for (int32_t i = 0; i < job.fruitless && pause < options_.most_restart_pause; ++i) pause = pause + pause;
    job.restart_at = now_ + std::min(pause, options_.most_restart_pause);
    ++job.fruitless;
  }
  if (now_ < job.restart_at) return false;
  job.restart_at = Nanos(0);
  return true;
}

bool Controller::NodesServe(const Job& job) const {
  return std::all_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
    const auto node = nodes_.find(rank.where.node);
    if (node == nodes_.end() || !node->second.worker_attached() || node->second.lost) return false;
    if (HasOrphans(node->second)) return false;
    const std::vector<NodeId>& excluded = job.record.excluded;
    if (cordons_.contains(rank.where.node) || std::find(excluded.begin(), excluded.end(), rank.where.node) != excluded.end())
      return false;
    const std::vector<Device>& devices = node->second.agent.devices;
    // Until a node's agent is back, assume that its devices have not changed.
    return devices.empty() || std::any_of(devices.begin(), devices.end(), [&](const Device& d) {
             return d.index == rank.where.device && d.kind == KindOf(job);
           });
  });
}

void Controller::Restart(Job& job, const std::string& reason) {
  ++job.record.restarts;
  StartAgain(job, EventKind::kRestarting, reason);
}

// Starts the job again: on the same devices, on others, or with another plan for the devices that exist.
void Controller::StartAgain(Job& job, EventKind kind, std::string reason) {
  JobRecord& record = job.record;
  if (record.held) return Requeue(job, EventKind::kHeld, reason);
  EndReplanning(job);
  std::vector<DeviceRef> had;
  for (const RankRecord& rank : record.ranks) had.push_back(rank.where);
  const std::vector<NodeDevices> free = DevicesAgain(job, had);
  const std::optional<std::vector<DeviceRef>> placement =
      NodesServe(job) ? std::optional(had) : PlaceRanksByLocality(job.plan->layout, free);
  const bool too_large = placement.has_value() && IsTooLarge(job, *placement);
  if (placement.has_value() && !too_large) {
    StartGeneration(job, *placement, kind, reason);
    return;
  }
  LeaveDevices(job);
  if (too_large ? PlanForLessMemory(job, free, reason) : ReplanForLess(job, free, reason)) return;
  Enqueue(job);
  SetState(
      job, JobState::kQueued, kind,
      absl::StrCat(reason, "; waits for ", job.plan->layout.ranks(), KindOf(job) == DeviceKind::kCuda ? " GPUs" : " devices"));
}

void Controller::JobTimers(Job& job) {
  const auto due = [this](Nanos deadline) { return deadline != Nanos(0) && now_ >= deadline; };
  if (due(job.persist_at)) Touch(job);
  if (due(job.measure_deadline)) AdvancePlanning(job);
  CheckSucceeded(job);
  CheckRequests(job);
  if (IsStopping(job)) CheckStopped(job);
  if (IsFinal(job.record.state) || IsStopping(job)) return;
  if (due(job.yield_deadline)) {
    OnYieldDeadline(job);
    if (job.record.state != JobState::kRunning || IsStopping(job)) return;
  }
  if (due(job.replanning.not_before) && MayGrow(job)) {
    job.replanning.not_before = Nanos(0);  // from now on it may grow whenever devices become free
    schedule_ = true;
  }
  CheckDrift(job);
  if (due(job.stop_deadline)) {
    // Only ranks that lost a peer have failed: report what the first of them saw.
    const auto first = std::min_element(job.ranks.begin(), job.ranks.end(), [](const LiveRank& a, const LiveRank& b) {
      return std::pair(!a.failed, a.order) < std::pair(!b.failed, b.order);
    });
    const std::string seen = FailureText(job, static_cast<int32_t>(first - job.ranks.begin()));
    // The end of a peer reaches every running rank, so the few ranks that do not report hang.
    const auto failed = std::count_if(job.ranks.begin(), job.ranks.end(), [](const LiveRank& r) { return r.failed; });
    std::vector<std::string> silent;
    for (size_t r = 0; r < job.ranks.size(); ++r) {
      if (job.ranks[r].failed || job.ranks[r].phase != RankPhase::kRunning) continue;
      silent.push_back(RankText(job.record, static_cast<int32_t>(r)));
    }
    BeginStop(job, StopKind::kRestart, EventKind::kRankLost,
              silent.empty() || static_cast<std::ptrdiff_t>(silent.size()) > failed
                  ? seen
                  : absl::StrCat(absl::StrJoin(silent, ", "), " neither went on nor ended when others gave up: ", seen));
    return;
  }
  if (due(job.listen_deadline)) {
    size_t r = 0;
    while (r + 1 < job.ranks.size() && job.ranks[r].phase.has_value()) ++r;
    BeginStop(job, StopKind::kRestart, EventKind::kRankLost,
              absl::StrCat(RankText(job.record, static_cast<int32_t>(r)), " did not come up within ",
                           FormatDuration(options_.listen_timeout)));
  }
}

}  // namespace lynx
