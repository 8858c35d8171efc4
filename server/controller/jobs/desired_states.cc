#include "server/controller/jobs/desired_states.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lynx::server {

RankAssignment DesiredStates::AssignmentOf(const LiveJob& job, int32_t rank, const LiveNode& node) const {
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  RankAssignment assignment{.key = {job.record.id, job.record.generation, rank},
                            .device = record.where.device,
                            .device_kind = devices_.KindOf(job),
                            .device_uuid = record.device_uuid,
                            .spec = job.record.spec,
                            .plan = job.plan,
                            .peers = job.generation.peers,
                            .resume_step = job.record.resume_step};
  assignment.checkpoint_directory = job.record.spec->checkpoint.directory;
  if (assignment.checkpoint_directory.empty()) {
    assignment.checkpoint_directory = absl::StrCat(options_.checkpoint_root, "/", job.record.id.value, "/checkpoints");
  }
  for (const Device& device : node.agent.devices) {
    if (device.index != record.where.device || device.kind != assignment.device_kind) continue;
    assignment.cores = device.cores;
    assignment.device_uuid = device.uuid;
  }
  // If an earlier server did not store the UUID of the GPU, this server does not know it until the node's agent is back. Until
  // then the rank gets no peers, so it only listens.
  if (assignment.device_kind == DeviceKind::kCuda && assignment.device_uuid.empty()) assignment.peers = nullptr;
  assignment.yield = GivesWay(job.record.stop);
  assignment.check = job.record.check_due;
  assignment.encryption = options_.encryption;
  const auto seen = node.ranks.find(assignment.key);
  assignment.started = seen != node.ranks.end() && seen->second.phase != RankPhase::kListening;
  return assignment;
}

// If the programs of the ranks to start exceed the limit of one message, removes the peers from the assignments of the last
// ranks. A rank without peers keeps listening. It gets its peers and its program after other ranks of the node have started.
void DesiredStates::HoldBack(WorkerDesired& desired) const {
  Bytes text;
  for (RankAssignment& rank : desired.ranks) {
    if (rank.peers == nullptr || rank.started) continue;
    const size_t stage = static_cast<size_t>(CoordinatesOf(rank.plan->layout, rank.key.rank).stage);
    text += jobs_.At(rank.key.job).program_text.at(stage);
    if (text > options_.most_program_text) rank.peers = nullptr;
  }
}

WorkerDesired DesiredStates::Of(const LiveNode& node) const {
  WorkerDesired desired;
  for (const JobId& id : node.jobs) {
    const LiveJob& job = jobs_.At(id);
    for (const int32_t r : job.generation.ranks_on.at(node.name)) {
      const RankRecord& rank = job.record.ranks[static_cast<size_t>(r)];
      const RankAssignment assignment = AssignmentOf(job, r, node);
      if (!IsStopping(job)) desired.ranks.push_back(assignment);
      if (rank.acknowledged > 0) desired.acks.push_back({.key = assignment.key, .sequence = rank.acknowledged});
    }
  }
  HoldBack(desired);
  if (const auto acks = orphan_acks_.find(node.name); acks != orphan_acks_.end()) {
    desired.acks.insert(desired.acks.end(), acks->second.begin(), acks->second.end());
  }
  for (const auto& [key, rank] : node.ranks) {
    if (rank.phase == RankPhase::kExited && !devices_.IsLive(key, node)) desired.acks.push_back({.key = key, .released = true});
  }
  desired.ended = checkpoints_.EndedOf(node);
  return desired;
}

void DesiredStates::AcknowledgeOrphans(const WorkerState& state, const LiveNode& node) {
  std::map<RankKey, int64_t> orphans;
  for (const RankMessage& message : state.messages) {
    if (devices_.IsLive(message.key, node)) continue;
    ++fenced_reports_;
    orphans[message.key] = std::max(orphans[message.key], message.sequence);
  }
  for (const auto& [key, sequence] : orphans) orphan_acks_[node.name].push_back({.key = key, .sequence = sequence});
  const bool ended = std::any_of(state.ranks.begin(), state.ranks.end(), [&](const RankObservation& rank) {
    return rank.phase == RankPhase::kExited && !devices_.IsLive(rank.key, node);
  });
  if (ended || !orphans.empty()) step_.TellWorker(node.name);
  if (ended) step_.LookAtQueue();  // the devices of the ended orphans may be free now
}

}  // namespace lynx::server
