#include "server/controller/jobs/device_pool.h"

#include <algorithm>

#include "server/health/memory_limits.h"
#include "server/scheduling/availability.h"
#include "server/scheduling/locality_selection.h"
#include "server/scheduling/planned_kinds.h"

namespace lynx::server {

void DevicePool::SetQueue(QueueConfig queue) {
  const std::string name = queue.name;
  queues_[name] = std::move(queue);
}

bool DevicePool::IsLive(const RankKey& key, const LiveNode& node) const {
  const LiveJob* job = jobs_.Find(key.job);
  return job != nullptr && job->record.generation == key.generation && key.rank >= 0 &&
         static_cast<size_t>(key.rank) < job->generation.ranks.size() &&
         job->record.ranks[static_cast<size_t>(key.rank)].where.node == node.name;
}

bool DevicePool::HasOrphans(const LiveNode& node) const {
  if (options_.Makes(Mistake::kForgetOrphans)) return false;
  return std::any_of(node.ranks.begin(), node.ranks.end(), [&](const auto& entry) {
    return entry.second.phase == RankPhase::kRunning && !IsLive(entry.first, node);
  });
}

bool DevicePool::MayEncrypt(const LiveNode& node) const { return options_.encryption == RankEncryption::kOff || node.encrypts; }

bool DevicePool::TakesRanks(const LiveNode& node, Cordoned cordoned) const {
  return node.worker_attached() && MayEncrypt(node) && !HasOrphans(node) &&
         (cordoned == Cordoned::kIncluded || !nodes_.cordons().contains(node.name));
}

// The node's devices of this kind that `wanted` accepts.
NodeDevices DevicePool::DevicesOf(const LiveNode& node, DeviceKind kind, const std::function<bool(const DeviceRef&)>& wanted) {
  NodeDevices devices{.node = node.name,
                      .domain = node.agent.network_domain,
                      .slow = IsSlow(node.slowness),
                      .alone = kind == DeviceKind::kCuda && node.agent.network_rate_assumed};
  if (node.agent.profile != nullptr) {
    // GPUs are compared by their tensor cores, whatever the job's data type. In float32 an A40 is faster than an A100.
    const DataType type = kind == DeviceKind::kCuda ? DataType::kBfloat16 : DataType::kFloat32;
    devices.flops_per_second = node.agent.profile->FlopsPerSecond(type);
  }
  for (const Device& device : node.agent.devices) {
    if (device.kind != kind || !wanted(DeviceRef{node.name, device.index})) continue;
    devices.free.push_back(device.index);
    const bool first = devices.free.size() == 1;
    devices.memory_per_device = first ? device.memory : std::min(devices.memory_per_device, device.memory);
  }
  std::sort(devices.free.begin(), devices.free.end());
  return devices;
}

std::vector<NodeDevices> DevicePool::AttachedDevices(DeviceKind kind, Cordoned cordoned) const {
  return DevicesExcept({}, kind, cordoned);
}

// All devices of this kind, except the used ones, on nodes that can take ranks.
std::vector<NodeDevices> DevicePool::DevicesExcept(const std::set<DeviceRef>& used, DeviceKind kind, Cordoned cordoned) const {
  std::vector<NodeDevices> free;
  for (const auto& [name, node] : nodes_.all()) {
    if (!TakesRanks(node, cordoned)) continue;
    NodeDevices devices =
        DevicesOf(node, kind, [&](const DeviceRef& device) { return used.empty() || !used.contains(device); });
    if (!devices.free.empty()) free.push_back(std::move(devices));
  }
  SortByLocality(free);
  return free;
}

std::vector<NodeDevices> DevicePool::FreeDevices(DeviceKind kind, const LiveJob* for_job) const {
  std::set<DeviceRef> used;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& job = jobs_.At(id);
    if (&job == for_job || options_.Makes(Mistake::kForgetWhatIsHeld)) continue;
    for (const RankRecord& rank : job.record.ranks) used.insert(rank.where);
    used.insert(job.planning.reservation.devices.begin(), job.planning.reservation.devices.end());
  }
  std::vector<NodeDevices> free = DevicesExcept(used, kind, Cordoned::kExcluded);
  return for_job == nullptr ? free : WithoutNodes(std::move(free), for_job->record.excluded);
}

std::vector<NodeDevices> DevicePool::StillThere(const std::vector<DeviceRef>& held, DeviceKind kind, const LiveJob& job) const {
  const std::set<DeviceRef> wanted(held.begin(), held.end());
  const std::vector<NodeId>& excluded = job.record.excluded;
  std::vector<NodeDevices> there;
  for (auto at = wanted.begin(); at != wanted.end();) {
    const NodeId& name = at->node;
    const LiveNode* node = nodes_.Find(name);
    const bool takes = node != nullptr && TakesRanks(*node, Cordoned::kExcluded) &&
                       std::find(excluded.begin(), excluded.end(), name) == excluded.end();
    NodeDevices devices;
    if (takes) devices = DevicesOf(*node, kind, [&](const DeviceRef& device) { return wanted.contains(device); });
    if (!devices.free.empty()) there.push_back(std::move(devices));
    while (at != wanted.end() && at->node == name) ++at;
  }
  SortByLocality(there);
  return there;
}

DeviceKind DevicePool::KindOf(const LiveJob& job) const {
  if (job.record.device_kind != DeviceKind::kAny) return job.record.device_kind;
  if (job.plan != nullptr) return DeviceKind::kCpu;  // an earlier version of the server made the plan, which knew only CPUs
  if (job.planning.tried_kind != DeviceKind::kAny) return job.planning.tried_kind;
  const DeviceKind asked = job.record.spec->resources.device;
  if (asked != DeviceKind::kAny) return asked;
  if (!nodes_.has_gpus()) return DeviceKind::kCpu;
  // GPUs that cannot be used together are counted too. Then the job waits, and says what to do.
  const std::vector<NodeDevices> gpus = AllTogether(AttachedDevices(DeviceKind::kCuda, Cordoned::kIncluded));
  const bool enough = Reserve(gpus, DemandOf(job)).has_value();
  return enough ? DeviceKind::kCuda : DeviceKind::kCpu;
}

int32_t DevicePool::MinRanksOf(const LiveJob& job) const {
  const ParallelSpec& pinned = job.record.spec->parallel;
  const int32_t product = std::max(pinned.tp, 1) * std::max(pinned.pp, 1) * std::max(pinned.dp, 1);
  return std::max({job.record.spec->resources.min_ranks, product, job.planning.min_devices});
}

Demand DevicePool::DemandOf(const LiveJob& job) const {
  const JobSpec& spec = *job.record.spec;
  Demand demand{.min_ranks = MinRanksOf(job), .max_ranks = spec.resources.max_ranks, .group = std::max(spec.parallel.tp, 1)};
  const auto queue = queues_.find(spec.scheduling.queue);
  if (queue == queues_.end() || queue->second.may_borrow || !IsElastic(job)) return demand;
  const int32_t own = job.record.state == JobState::kQueued ? 0 : DevicesUsed(job);
  UsedDevices used = Used();
  const auto limit = [&](int32_t quota, int32_t in_use) {
    if (quota > 0) demand.max_ranks = std::min(demand.max_ranks, std::max(0, quota - in_use + own));
  };
  limit(queue->second.quota, used.by_queue[spec.scheduling.queue]);
  limit(queue->second.user_quota, used.by_user[{spec.scheduling.queue, job.record.owner}]);
  return demand;
}

UsedDevices DevicePool::Used() const {
  UsedDevices used;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& job = jobs_.At(id);
    const std::string& queue = job.record.spec->scheduling.queue;
    used.by_queue[queue] += DevicesUsed(job);
    used.by_user[{queue, job.record.owner}] += DevicesUsed(job);
  }
  return used;
}

DevicePool::AttachedCount DevicePool::CountAttached(DeviceKind kind) const {
  AttachedCount count;
  for (const auto& [name, node] : nodes_.all()) {
    if (!node.worker_attached()) continue;
    for (const Device& device : node.agent.devices) {
      if (device.kind != kind) continue;
      ++count.all;
      count.cordoned += nodes_.cordons().contains(name) ? 1 : 0;
      count.plain += MayEncrypt(node) ? 0 : 1;
    }
  }
  return count;
}

NodeDevices DevicePool::FactsOf(const NodeId& name, DeviceKind kind) const {
  const LiveNode* node = nodes_.Find(name);
  if (node == nullptr) return {.node = name};
  NodeDevices facts = DevicesOf(*node, kind, [](const DeviceRef&) { return true; });
  facts.free.clear();
  return facts;
}

bool DevicePool::MayUse(const LiveJob& job, DeviceKind kind, const NodeId& name) const {
  const LiveNode* found = nodes_.Find(name);
  if (found == nullptr || !TakesRanks(*found, Cordoned::kExcluded)) return false;
  const std::vector<NodeId>& excluded = job.record.excluded;
  if (std::find(excluded.begin(), excluded.end(), name) != excluded.end()) return false;
  const std::vector<Device>& devices = found->agent.devices;
  return std::any_of(devices.begin(), devices.end(), [&](const Device& device) { return device.kind == kind; });
}

std::optional<std::vector<DeviceRef>> DevicePool::PlacementOn(const std::vector<NodeDevices>& free,
                                                              const ParallelLayout& layout,
                                                              const ClusterTopology* cluster) const {
  if (std::none_of(free.begin(), free.end(), [](const NodeDevices& node) { return node.alone; })) {
    return PlacementTogether(free, layout, cluster);
  }
  for (const std::vector<NodeDevices>& set : UsableTogether(free)) {
    std::optional<std::vector<DeviceRef>> placement = PlacementTogether(set, layout, cluster);
    if (placement.has_value()) return placement;
  }
  return std::nullopt;
}

std::optional<std::vector<DeviceRef>> DevicePool::PlacementTogether(const std::vector<NodeDevices>& free,
                                                                    const ParallelLayout& layout,
                                                                    const ClusterTopology* cluster) const {
  if (cluster != nullptr) {
    const auto profile_of = [&](const NodeId& name) -> std::shared_ptr<const HardwareProfile> {
      const LiveNode* node = nodes_.Find(name);
      if (node == nullptr || node->agent.profile == nullptr || node->slowness == Slowness())
        return node == nullptr ? nullptr : node->agent.profile;
      return std::make_shared<const HardwareProfile>(Slowed(*node->agent.profile, node->slowness));
    };
    std::optional<std::vector<DeviceRef>> placement = PlaceRanksByKind(layout, *cluster, free, profile_of);
    if (placement.has_value()) return placement;
  }
  return PlaceRanksByLocality(layout, free);
}

std::optional<std::vector<DeviceRef>> DevicePool::Fits(const LiveJob& job, const std::vector<NodeDevices>& free) const {
  if (job.plan != nullptr) {
    std::optional<std::vector<DeviceRef>> placement = PlacementOn(free, job);
    const bool too_many = IsElastic(job) && job.plan->layout.ranks() > DemandOf(job).max_ranks;
    if ((placement.has_value() && !too_many) || !IsElastic(job)) return placement;
  }
  std::optional<Reservation> reservation = Reserve(free, DemandOf(job));
  if (!reservation.has_value() || (job.plan != nullptr && reservation->devices == job.replanning.considered)) {
    return std::nullopt;
  }
  return std::move(reservation->devices);
}

std::string DevicePool::UuidOf(const DeviceRef& where, DeviceKind kind, const std::vector<RankRecord>& before) const {
  for (const Device& device : nodes_.At(where.node).agent.devices) {
    if (device.index == where.device && device.kind == kind) return device.uuid;
  }
  const auto had = std::find_if(before.begin(), before.end(), [&](const RankRecord& rank) { return rank.where == where; });
  return had != before.end() ? had->device_uuid : "";
}

bool DevicePool::NodesServe(const LiveJob& job) const {
  return std::all_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
    const LiveNode* node = nodes_.Find(rank.where.node);
    if (node == nullptr || !node->worker_attached() || node->lost || !MayEncrypt(*node)) return false;
    if (HasOrphans(*node)) return false;
    const std::vector<NodeId>& excluded = job.record.excluded;
    if (nodes_.cordons().contains(rank.where.node) ||
        std::find(excluded.begin(), excluded.end(), rank.where.node) != excluded.end())
      return false;
    const std::vector<Device>& devices = node->agent.devices;
    // Until a node's agent is back, assume that its devices have not changed.
    return devices.empty() || std::any_of(devices.begin(), devices.end(), [&](const Device& d) {
             return d.index == rank.where.device && d.kind == KindOf(job);
           });
  });
}

Bytes DevicePool::MemoryLimitFor(const LiveJob& job, size_t first, size_t end) const {
  Bytes limit;
  for (size_t i = first; i < end; ++i) {
    const Bytes own = MemoryLimitOf(job.record.memory_limits, nodes_.ModelOf(job.planning.reservation.devices[i], KindOf(job)));
    if (own > Bytes(0)) limit = limit == Bytes(0) ? own : std::min(limit, own);
  }
  return limit;
}

bool DevicePool::IsTooLarge(const LiveJob& job, const std::vector<DeviceRef>& placement) const {
  const bool mixed = job.planned_kinds != nullptr;
  if ((job.record.memory_limits.empty() && !mixed) || options_.Makes(Mistake::kForgetMemory)) return false;
  for (size_t r = 0; r < placement.size(); ++r) {
    Bytes limit = MemoryLimitOf(job.record.memory_limits, nodes_.ModelOf(placement[r], KindOf(job)));
    const Bytes device = mixed ? FactsOf(placement[r].node, KindOf(job)).memory_per_device : Bytes(0);
    if (device > Bytes(0)) limit = limit == Bytes(0) ? device : std::min(limit, device);
    const int32_t stage = CoordinatesOf(job.plan->layout, static_cast<int32_t>(r)).stage;
    if (limit > Bytes(0) && TakenByPlan(*job.plan, stage, KindOf(job)) > limit) return true;
  }
  return false;
}

}  // namespace lynx::server
