#include "server/controller/state/live_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/program/action.h"

namespace lynx::server {
namespace {

// A change of plan is assumed to take at least this long. The measured start time includes neither the checkpoint nor the first
// steps, which are slow because caches are cold.
constexpr Nanos kLeastCost{5'000'000'000};
constexpr double kSlowDisk = 32 << 20;  // bytes per second

}  // namespace

bool IsElastic(const LiveJob& job) {
  const ResourceSpec& resources = job.record.spec->resources;
  return resources.min_ranks < resources.max_ranks;
}

bool IsStopping(const LiveJob& job) {
  if (GivesWay(job.record.stop)) return job.generation.stopping_since != Nanos(0);
  return job.record.stop != StopKind::kNone;
}

bool IsPlanned(const LiveJob& job) { return job.record.state == JobState::kPlanning || !job.replanning.trigger.empty(); }

bool IsBreaking(const LiveJob& job) { return job.generation.stop_deadline != Nanos(0); }

int32_t DevicesUsed(const LiveJob& job) {
  return static_cast<int32_t>(std::max(job.record.ranks.size(), job.planning.reservation.devices.size()));
}

void IndexRanks(LiveJob& job) {
  job.generation.ranks_on.clear();
  for (size_t r = 0; r < job.record.ranks.size(); ++r)
    job.generation.ranks_on[job.record.ranks[r].where.node].push_back(static_cast<int32_t>(r));
}

Nanos CheckpointTime(const LiveJob& job) {
  const int64_t share = job.replanning.checkpoint.value / std::max<int64_t>(1, job.plan->layout.ranks());
  return Nanos(static_cast<int64_t>(static_cast<double>(share) / kSlowDisk * 1e9));
}

Nanos CostOfChange(const LiveJob& job) {
  return std::max(kLeastCost, job.replanning.start_took + job.record.progress.step + CheckpointTime(job));
}

Reservation HeldBy(const LiveJob& job) {
  Reservation held;
  std::vector<int32_t> on_node;  // number of devices, node by node
  for (const RankRecord& rank : job.record.ranks) {
    if (held.devices.empty() || held.devices.back().node != rank.where.node) on_node.push_back(0);
    ++on_node.back();
    held.devices.push_back(rank.where);
  }
  const bool alike = std::all_of(on_node.begin(), on_node.end(), [&](int32_t count) { return count == on_node.front(); });
  const int32_t per_node = alike ? on_node.front() : 1;
  held.topology = UniformCluster(static_cast<int32_t>(held.devices.size()) / per_node, per_node);
  return held;
}

PlanTrigger TriggerOf(const LiveJob& job) {
  if (job.record.state == JobState::kRunning) {
    return job.planning.reservation.devices.size() > job.record.ranks.size() ? PlanTrigger::kGrowth : PlanTrigger::kDrift;
  }
  if (job.planning.speculative) return PlanTrigger::kSpeculation;
  if (job.memory.is_short) return PlanTrigger::kMemory;
  return job.plan != nullptr ? PlanTrigger::kLoss : PlanTrigger::kFirst;
}

double SkewOf(const LiveJob& job) {
  if (job.drift.skew_found > 0) return job.drift.skew_found;
  return job.plan != nullptr ? job.plan->model.moe.skew : job.record.spec->model.moe.skew;
}

JobSpec SpecToPlan(const LiveJob& job) {
  JobSpec spec = *job.record.spec;
  spec.model.moe.skew = SkewOf(job);
  return spec;
}

std::string NameText(const LiveJob& job) { return absl::StrCat(job.record.spec->name, " (", job.record.id.value, ")"); }

std::shared_ptr<const ClusterTopology> PlannedKinds(std::shared_ptr<const ClusterTopology> cluster) {
  return cluster != nullptr && cluster->groups.size() > 1 ? std::move(cluster) : nullptr;
}

std::vector<Bytes> ProgramTextOf(const Plan& plan) {
  std::vector<Bytes> sizes;
  for (const StagePlan& stage : plan.stages) {
    sizes.push_back(Bytes(static_cast<int64_t>(ProgramText(stage.program).size())));
  }
  return sizes;
}

Nanos Remaining(const LiveJob& job, Nanos now) {
  const JobRecord& record = job.record;
  const bool measured = record.state == JobState::kRunning && record.progress.step > Nanos(0);
  const Nanos step = measured ? record.progress.step : job.plan->step;
  const double steps = static_cast<double>(std::max<int64_t>(0, record.spec->train.steps - record.progress.steps_done));
  constexpr double kFar = 1e18;  // nanoseconds: about 31 years
  Nanos remaining(static_cast<int64_t>(std::min(kFar, steps * static_cast<double>(step.value))));
  const Nanos limit = record.spec->scheduling.time_limit;
  if (limit > Nanos(0)) remaining = std::min(remaining, std::max(Nanos(0), limit - TrainedBy(job, now)));
  return remaining;
}

Nanos TrainedBy(const LiveJob& job, Nanos now) {
  return job.record.ranks.empty() ? job.trained_before : job.trained_before + (now - job.replanning.began);
}

std::string RankText(const JobRecord& record, int32_t rank) {
  return absl::StrCat("rank ", rank, " on node ", record.ranks[static_cast<size_t>(rank)].where.node.value);
}

std::string SummaryOf(const Plan& plan) {
  return absl::StrCat(LayoutText(plan.layout), " on ", plan.layout.ranks(), " devices (", plan.digest.substr(0, 12),
                      ", predicted step ", FormatDuration(plan.step), ")");
}

}  // namespace lynx::server
