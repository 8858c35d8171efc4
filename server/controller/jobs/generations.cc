#include "server/controller/jobs/generations.h"

#include <memory>
#include <utility>

#include "common/check.h"

namespace lynx::server {
namespace {

// The plan of an ended job without its programs. People never see the programs, and the store keeps them.
Plan WithoutPrograms(const Plan& plan) {
  Plan summary = plan;
  for (StagePlan& stage : summary.stages) stage.program.clear();
  return summary;
}

}  // namespace

void Generations::Start(LiveJob& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason) {
  LYNX_CHECK(job.plan != nullptr && placement.size() == static_cast<size_t>(job.plan->layout.ranks()));
  JobRecord& record = job.record;
  waiting_.Dequeue(job);
  job.trained_before = TrainedBy(job, step_.now());
  LeaveNodes(job);
  if (!options_.Makes(Mistake::kReuseGeneration) || record.generation == Generation(0)) {
    record.generation = Generation(record.generation.value + 1);
  }
  record.stop = StopKind::kNone;
  record.stop_reason.clear();
  record.resume_step = record.checkpoint_step;
  record.base_steps = record.best_steps;
  const NodeCheckPolicy policy = record.spec->node_check;
  record.check_due = policy == NodeCheckPolicy::kAlways || (record.check_due && policy == NodeCheckPolicy::kAuto);
  const std::vector<RankRecord> before = std::exchange(record.ranks, {});
  record.measured.clear();
  for (const DeviceRef& device : placement) {
    record.ranks.push_back({.where = device, .device_uuid = devices_.UuidOf(device, devices_.KindOf(job), before)});
    nodes_.Of(device.node).jobs.insert(record.id);
  }
  IndexRanks(job);
  job.generation.ranks.assign(placement.size(), LiveRank());
  job.generation.peers.reset();
  BeginWatching(job, {});
  job.generation.first_step = -1;
  job.generation.from_copies = false;
  job.replanning.began = step_.now();
  job.replanning.steps_done = 0;
  job.generation.failures = 0;
  job.generation.restart_at = Nanos(0);
  job.generation.stop_deadline = job.generation.yield_deadline = job.generation.stopping_since = Nanos(0);
  job.generation.listen_deadline = step_.now() + options_.listen_timeout;
  step_.SetState(job, JobState::kStarting, kind, options_.Makes(Mistake::kStartSilently) ? "" : reason);
  step_.TellNodesOf(job);
}

void Generations::Restore(LiveJob& job) {
  jobs_.SetActive(job.record.id, true);
  LYNX_CHECK(job.plan != nullptr && job.record.ranks.size() == static_cast<size_t>(job.plan->layout.ranks()));
  step_.AddEvent(job, EventKind::kServerRestarted, "the server restarted; ranks go on and their nodes are expected back");
  // The earlier server knew the plan or the job for which the ranks should give way; this server does not. If the reason still
  // exists, this server finds it again.
  if (GivesWay(job.record.stop)) {
    job.record.stop = StopKind::kNone;
    job.record.stop_reason.clear();
    job.record.reason = "goes on as planned";
  }
  if (IsStopping(job)) job.generation.stopping_since = step_.now();
  job.replanning.began = step_.now();
  job.replanning.not_before = step_.now() + options_.replan_after;
  step_.Touch(job);
  BeginWatching(job, job.record.measured);
  job.generation.ranks.resize(job.record.ranks.size());
  std::vector<RankAddress> peers;
  for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
    const RankRecord& rank = job.record.ranks[r];
    job.generation.ranks[r].received = rank.acknowledged;
    job.generation.ranks[r].started = job.record.state == JobState::kRunning;
    job.generation.ranks[r].finished_at = step_.now();
    LiveNode& node = nodes_.Of(rank.where.node);
    node.jobs.insert(job.record.id);
    node.worker_gone_at = step_.now();
    if (rank.port > 0) peers.push_back({rank.host, rank.port});
  }
  IndexRanks(job);
  if (peers.size() == job.generation.ranks.size()) {
    job.generation.peers = std::make_shared<const std::vector<RankAddress>>(std::move(peers));
  } else {
    job.generation.listen_deadline = step_.now() + options_.node_timeout + options_.listen_timeout;
  }
}

// Begins the statistics and watches of a generation. `measured`: measurements of the same generation by an earlier server.
void Generations::BeginWatching(LiveJob& job, std::vector<StageMeasurement> measured) {
  job.generation.statistics = StepStatistics(job.plan->layout, std::move(measured));
  job.drift.speed = SpeedWatch(job.plan->layout.ranks());
  job.drift.links = LinkWatch(job.plan->layout.ranks());
  job.drift.skew = {};
  job.drift.slowness_watched = nodes_.SlownessOf(job);
  job.generation.traces = TraceAssembly(job.plan->stages.size());
}

void Generations::LeaveNodes(LiveJob& job) {
  step_.TellNodesOf(job);
  for (const RankRecord& rank : job.record.ranks) nodes_.Of(rank.where.node).jobs.erase(job.record.id);
}

void Generations::LeaveDevices(LiveJob& job) {
  job.trained_before = TrainedBy(job, step_.now());
  LeaveNodes(job);
  job.makes_room = false;
  job.record.ranks.clear();
  job.record.stop = StopKind::kNone;
  job.record.stop_reason.clear();
  job.generation.ranks.clear();
  job.generation.peers.reset();
  job.generation.listen_deadline = job.generation.stop_deadline = job.generation.yield_deadline =
      job.generation.stopping_since = Nanos(0);
  step_.LookAtQueue();
}

void Generations::Requeue(LiveJob& job, EventKind kind, std::string reason) {
  planning_.EndReplanning(job);
  LeaveDevices(job);
  waiting_.Enqueue(job);
  step_.SetState(job, JobState::kQueued, kind, reason);
  waiting_.SetPending(job, job.record.pending);
}

void Generations::EndJob(LiveJob& job, JobState state, EventKind kind, std::string reason) {
  JobRecord& record = job.record;
  waiting_.Dequeue(job);
  planning_.EndReplanning(job);
  record.trained = job.trained_before = TrainedBy(job, step_.now());
  LeaveNodes(job);
  if (!job.generation.ranks.empty()) record.measured = job.generation.statistics.Measured();
  job.generation.ranks.clear();
  job.generation.peers.reset();
  job.planned_kinds.reset();
  job.program_text.clear();
  job.drift.speed = {};
  job.drift.links = {};
  job.drift.skew = {};
  if (job.plan != nullptr) job.plan = std::make_shared<const Plan>(WithoutPrograms(*job.plan));
  job.generation.listen_deadline = job.generation.stop_deadline = Nanos(0);
  record.stop = StopKind::kNone;
  record.stop_reason.clear();
  record.ended = step_.wall();
  jobs_.MarkEnded(job);
  step_.SetState(job, state, kind, reason);
  checkpoints_.TellHoldersOf(job);
  step_.LookAtQueue();
}

}  // namespace lynx::server
