// The queue: whose turn it is, which jobs may pass others, which give way, and why a job waits. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "server/controller/controller.h"
#include "server/controller/reason_text.h"

namespace lynx {
namespace {

// At most this many jobs of each queue are examined. Jobs behind them are only told their place.
constexpr size_t kDepth = 100;
// Time until devices are free whose jobs have no known end.
constexpr Nanos kUnknown{int64_t{1} << 60};

std::pair<int32_t, int64_t> KeyOf(const JobRecord& record) { return {-record.spec->scheduling.priority, record.submission}; }

}  // namespace

// What one pass over the queue has found so far.
struct Controller::Line {
  const Job* head = nullptr;                                   // the first job that must wait
  std::optional<Expectation> expectation;                      // when the head can begin and on which devices
  std::string room;                                            // names of the jobs that give way to the head
  int64_t ahead = 0;                                           // number of waiting jobs before the present one
  std::map<DeviceKind, std::pair<int32_t, int32_t>> attached;  // devices, and of these the ones on cordoned nodes
  std::vector<NodeDevices> own;                                // free devices for the present job, if it excludes some nodes
};

void Controller::SetReady(const Job& job) {
  const JobRecord& record = job.record;
  auto& line = ready_[record.spec->scheduling.queue];
  line.erase(KeyOf(record));
  const bool ready =
      queue_.contains(record.submission) && (!record.held || Makes(Mistake::kForgetHolds)) && record.waits_for.empty();
  if (ready) line.insert(KeyOf(record));
  if (line.empty()) ready_.erase(record.spec->scheduling.queue);
}

void Controller::Enqueue(Job& job) {
  job.short_of_memory = false;
  queue_.insert(job.record.submission);
  active_.erase(job.record.id);
  if (!job.record.waits_for.empty()) dependents_.insert(job.record.id);
  job.line_until = job.record.generation == Generation(0) ? Nanos(0) : now_ + options_.return_timeout;
  if (job.line_until != Nanos(0)) in_line_.insert(job.record.id);
  SetReady(job);
  job.record.pending = WhyNotReady(job);
  schedule_ = true;
}

void Controller::Dequeue(Job& job) {
  queue_.erase(job.record.submission);
  active_.insert(job.record.id);
  dependents_.erase(job.record.id);
  SetReady(job);
  job.structural = job.over_quota = false;
  job.line_until = Nanos(0);
  in_line_.erase(job.record.id);
  if (favoured_ == job.record.id) favoured_ = JobId();
  job.record.pending.clear();
  job.record.expected_start = Nanos(0);
}

std::string Controller::NameText(const Job& job) const {
  return absl::StrCat(job.record.spec->name, " (", job.record.id.value, ")");
}

// For jobs that wait for others: one of those has succeeded, or never will.
void Controller::SettleDependencies() {
  const std::set<JobId> dependents = dependents_;
  for (const JobId& id : dependents) {
    Job& job = jobs_.at(id);
    std::vector<JobId>& waits_for = job.record.waits_for;
    const size_t before = waits_for.size();
    const auto state = [&](const JobId& other) {  // if the submission of `other` was lost, this job ends, too, in a moment
      return jobs_.contains(other) ? jobs_.at(other).record.state : JobState::kQueued;
    };
    std::erase_if(waits_for, [&](const JobId& other) { return state(other) == JobState::kSucceeded; });
    const auto ended =
        std::find_if(waits_for.begin(), waits_for.end(), [&](const JobId& other) { return IsFinal(state(other)); });
    if (ended != waits_for.end()) {
      const Job& other = jobs_.at(*ended);
      EndJob(job, JobState::kCancelled, EventKind::kCancelled,
             absl::StrCat("it was to begin after ", NameText(other), ", which ",
                          other.record.state == JobState::kFailed ? "has failed" : "was cancelled"));
      continue;
    }
    if (waits_for.size() == before) continue;
    Touch(job);
    if (waits_for.empty()) dependents_.erase(id);
    SetReady(job);
    SetPending(job, WhyNotReady(job));
  }
}

// Jobs whose time to keep their place in the line is over leave it.
void Controller::LeaveLine() {
  std::erase_if(in_line_, [&](const JobId& id) {
    Job& job = jobs_.at(id);
    if (now_ < job.line_until) return false;
    job.line_until = Nanos(0);
    schedule_ = schedule_ || job.structural;
    return true;
  });
}

void Controller::Schedule() {
  SettleDependencies();
  ForgetFree();
  while (Pass()) {}
  ForgetFree();
  LookForMore();
}

void Controller::ForgetFree() {
  free_.clear();
  used_.reset();
}

int32_t Controller::DevicesUsed(const Job& job) {
  return static_cast<int32_t>(std::max(job.record.ranks.size(), job.reservation.devices.size()));
}

std::map<std::string, int32_t> Controller::UsedByQueue() const {
  std::map<std::string, int32_t> used;
  for (const JobId& id : active_) {
    const Job& job = jobs_.at(id);
    used[job.record.spec->scheduling.queue] += DevicesUsed(job);
  }
  return used;
}

std::vector<Turn> Controller::Turns() {
  std::map<std::string, std::vector<WaitingJob>> waiting;
  for (const auto& [queue, line] : ready_) {
    std::vector<WaitingJob>& jobs = waiting[queue];
    for (const auto& [priority, submission] : line) {
      const Job& job = jobs_.at(by_submission_.at(submission));
      const int32_t planned = job.plan != nullptr && !IsElastic(job) ? job.plan->layout.ranks() : DemandOf(job).min_ranks;
      jobs.push_back({submission, planned});
      if (jobs.size() == kDepth) break;
    }
  }
  if (!used_.has_value()) used_ = UsedByQueue();
  return OrderOfTurns(waiting, *used_, queues_);
}

// True if a job has begun, so that the whole queue must be looked at again.
bool Controller::Pass() {
  if (ready_.empty()) return false;
  Line line;
  std::vector<Turn> turns = Turns();
  if (const Job* favoured = FindJob(favoured_); favoured != nullptr) {
    // Without this, other jobs might take the devices that were given back for it, again and again.
    const auto turn =
        std::find_if(turns.begin(), turns.end(), [&](const Turn& t) { return t.submission == favoured->record.submission; });
    if (turn != turns.end()) std::rotate(turns.begin(), turn, turn + 1);
  }
  for (const Turn& turn : turns) {
    Job& job = jobs_.at(by_submission_.at(turn.submission));
    job.record.expected_start = Nanos(0);
    job.over_quota = turn.standing == Standing::kOverQuota;
    if (job.over_quota) {
      SetPending(job, WhyWaits(job, turn.standing, line));
      continue;
    }
    if (line.head == nullptr) {
      if (TryHead(job, line)) {
        TakeFromFree(job);
        return true;
      }
      job.structural = !Fits(job, WithoutNodes(AttachedDevices(KindOf(job), {}), job.record.excluded)).has_value();
      if (!job.structural || now_ < job.line_until) {
        line.head = &job;
        line.expectation = Expect(job, line);
        line.room = SelectVictims(job, turn.standing, line);
        if (!line.room.empty()) {
          favoured_ = job.record.id;
        } else if (favoured_ == job.record.id) {
          favoured_ = JobId();  // the jobs that made room have left, and it was not enough
        }
        if (line.expectation.has_value() && line.expectation->at - now_ < kUnknown)
          job.record.expected_start = wall_ + (line.expectation->at - now_);
      }
    } else if (TryBackfill(job, line)) {
      TakeFromFree(job);
      return true;
    }
    SetPending(job, WhyWaits(job, turn.standing, line));
    ++line.ahead;
  }
  return false;
}

// The devices that the job would get from `free`: those for its plan, or others that it would be planned for.
std::optional<std::vector<DeviceRef>> Controller::Fits(const Job& job, const std::vector<NodeDevices>& free) const {
  if (job.plan != nullptr) {
    std::optional<std::vector<DeviceRef>> placement = PlaceRanksByLocality(job.plan->layout, free);
    const bool too_many = IsElastic(job) && job.plan->layout.ranks() > DemandOf(job).max_ranks;
    if ((placement.has_value() && !too_many) || !IsElastic(job)) return placement;
  }
  std::optional<Reservation> reservation = Reserve(free, DemandOf(job));
  if (!reservation.has_value() || (job.plan != nullptr && reservation->devices == job.replanning.considered)) {
    return std::nullopt;
  }
  return std::move(reservation->devices);
}

// Starts or plans the job on some of these devices if they are enough.
bool Controller::TryBegin(Job& job, const std::vector<NodeDevices>& free) {
  if (job.plan == nullptr) {
    std::optional<Reservation> reservation = Reserve(free, DemandOf(job));
    if (!reservation.has_value()) return false;
    job.tried_kind = KindOf(job);
    BeginPlanning(job, *std::move(reservation));
    return true;
  }
  const int32_t needed = job.plan->layout.ranks();
  const bool too_many = IsElastic(job) && needed > DemandOf(job).max_ranks;
  const std::optional<std::vector<DeviceRef>> placement = PlaceRanksByLocality(job.plan->layout, free);
  if (placement.has_value() && !too_many && IsTooLarge(job, *placement)) {
    return PlanForLessMemory(job, free, "the plan that it has takes more than there is");
  }
  if (placement.has_value() && !too_many) {
    StartGeneration(job, *placement, EventKind::kPlaced,
                    absl::StrCat(needed, " ranks on ", NodeNames(*placement), ", after a wait for devices"));
    return true;
  }
  return ReplanForLess(job, free, absl::StrCat("of the ", needed, " devices of its plan not all are free"));
}

// The free devices that the job could have. They are computed once for all waiting jobs. Valid until the next call.
const std::vector<NodeDevices>& Controller::FreeFor(const Job& job, Line& line) {
  const DeviceKind kind = KindOf(job);
  auto known = free_.find(kind);
  if (known == free_.end()) known = free_.emplace(kind, FreeDevices(kind, nullptr)).first;
  if (job.record.excluded.empty()) return known->second;
  return line.own = WithoutNodes(known->second, job.record.excluded);
}

// Removes the devices that the job has just got from the free devices.
void Controller::TakeFromFree(const Job& job) {
  if (used_.has_value()) (*used_)[job.record.spec->scheduling.queue] += DevicesUsed(job);
  std::map<NodeId, std::vector<int32_t>> taken;
  for (const DeviceRef& device : job.reservation.devices) taken[device.node].push_back(device.device);
  for (const RankRecord& rank : job.record.ranks) taken[rank.where.node].push_back(rank.where.device);
  // Nodes without free devices stay in the list: removing them would move thousands of entries, which takes longer than the
  // selection.
  for (auto& [kind, free] : free_) {
    size_t left = taken.size();
    for (auto node = free.begin(); left > 0 && node != free.end(); ++node) {
      const auto here = node->free.empty() ? taken.end() : taken.find(node->node);
      if (here == taken.end()) continue;
      --left;
      std::erase_if(node->free, [&](int32_t device) {
        return std::find(here->second.begin(), here->second.end(), device) != here->second.end();
      });
    }
  }
}

bool Controller::TryHead(Job& job, Line& line) {
  if (TryBegin(job, FreeFor(job, line))) return true;
  if (!MakeSpeculatorsLeave(job, line)) return false;
  ForgetFree();
  return TryBegin(job, FreeFor(job, line));
}

// Jobs behind this one that are only planned to see whether they could pass must not keep it waiting.
bool Controller::MakeSpeculatorsLeave(const Job& job, Line& line) {
  const DeviceKind kind = KindOf(job);
  std::vector<DeviceRef> held;
  std::vector<JobId> speculators;
  for (const JobId& id : active_) {
    const Job& other = jobs_.at(id);
    if (!other.speculative || other.record.state != JobState::kPlanning || KindOf(other) != kind) continue;
    held.insert(held.end(), other.reservation.devices.begin(), other.reservation.devices.end());
    speculators.push_back(id);
  }
  std::erase_if(held, [&](const DeviceRef& device) { return !MayUse(job, kind, device.node); });
  if (held.empty() || !Fits(job, With(FreeFor(job, line), held)).has_value()) return false;
  for (const JobId& id : speculators) {
    Job& other = jobs_.at(id);
    other.speculative = false;
    EndPlanning(other);
    Enqueue(other);
    SetState(other, JobState::kQueued, EventKind::kQueued,
             absl::StrCat("makes room for ", NameText(job), ", which is before it"));
  }
  return true;
}

// Starts the job although the head waits: on devices that the head will not get, or if it ends before the head begins.
bool Controller::TryBackfill(Job& job, Line& line) {
  const std::vector<NodeDevices>& free = FreeFor(job, line);
  if (KindOf(job) != KindOf(*line.head)) return TryBegin(job, free);
  if (!line.expectation.has_value() || !Fits(job, free).has_value()) return false;
  if (TryBegin(job, Without(free, line.expectation->devices))) return true;
  const Nanos window = line.expectation->at - now_;
  if (window >= kUnknown) return false;
  const Nanos limit = job.record.spec->scheduling.time_limit;
  const bool limited = limit > Nanos(0) && limit - Trained(job) <= window;
  if (limited) return TryBegin(job, free);
  // The remaining time is that of the present plan, so the job must start with that plan.
  if (job.plan != nullptr && Remaining(job) <= window && PlaceRanksByLocality(job.plan->layout, free).has_value())
    return TryBegin(job, free);
  if (job.plan != nullptr || window <= options_.soon) return false;
  job.speculative = true;  // its plan will tell how long it takes
  return TryBegin(job, free);
}

// The time until the job ends, from the measured or predicted time of its steps.
Nanos Controller::Remaining(const Job& job) const {
  const JobRecord& record = job.record;
  const bool measured = record.state == JobState::kRunning && record.progress.step > Nanos(0);
  const Nanos step = measured ? record.progress.step : job.plan->step;
  const double steps = static_cast<double>(std::max<int64_t>(0, record.spec->train.steps - record.progress.steps_done));
  constexpr double kFar = 1e18;  // 31 years
  Nanos remaining(static_cast<int64_t>(std::min(kFar, steps * static_cast<double>(step.value))));
  const Nanos limit = record.spec->scheduling.time_limit;
  if (limit > Nanos(0)) remaining = std::min(remaining, std::max(Nanos(0), limit - Trained(job)));
  return remaining;
}

// False for a cordoned node and for one that the job excludes.
bool Controller::MayUse(const Job& job, DeviceKind kind, const NodeId& name) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || !TakesRanks(found->second, false)) return false;
  const std::vector<NodeId>& excluded = job.record.excluded;
  if (std::find(excluded.begin(), excluded.end(), name) != excluded.end()) return false;
  const std::vector<Device>& devices = found->second.agent.devices;
  return std::any_of(devices.begin(), devices.end(), [&](const Device& device) { return device.kind == kind; });
}

// When the job would begin if no other job passed it.
std::optional<Expectation> Controller::Expect(const Job& job, Line& line) {
  const DeviceKind kind = KindOf(job);
  std::vector<Release> releases;
  for (const JobId& id : active_) {
    const Job& other = jobs_.at(id);
    if (KindOf(other) != kind) continue;
    const StopKind stop = other.record.stop;
    const bool leaves = stop == StopKind::kCancel || stop == StopKind::kPreempt || stop == StopKind::kMove ||
                        stop == StopKind::kTimeLimit || stop == StopKind::kLeave;
    std::set<DeviceRef> own;
    for (const RankRecord& rank : other.record.ranks) own.insert(rank.where);
    Release release{.devices = {own.begin(), own.end()}}, planned{.at = now_ + kUnknown};
    release.at = leaves ? now_ : own.empty() ? planned.at : now_ + Remaining(other);
    for (const DeviceRef& device : other.reservation.devices) {
      if (!own.contains(device)) planned.devices.push_back(device);
    }
    releases.push_back(std::move(release));
    releases.push_back(std::move(planned));
  }
  for (Release& release : releases) {
    std::erase_if(release.devices, [&](const DeviceRef& device) { return !MayUse(job, kind, device.node); });
  }
  return WhenFits(FreeFor(job, line), std::move(releases),
                  [&](const std::vector<NodeDevices>& free) { return Fits(job, free); });
}

// Names of the jobs that give way on these devices.
std::string Controller::WhoGivesWay(const std::vector<DeviceRef>& devices) const {
  std::vector<std::string> names;
  for (const JobId& id : active_) {
    const Job& job = jobs_.at(id);
    const bool has = std::any_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
      return std::find(devices.begin(), devices.end(), rank.where) != devices.end();
    });
    if (job.record.stop == StopKind::kPreempt && has) names.push_back(NameText(job));
  }
  return absl::StrJoin(names, ", ");
}

// Asks running jobs to give way if the first job in line has a right to their devices. These are jobs of a lower priority and,
// if it is within its queue's quota, jobs that borrow. Returns the names of those that give way; empty: nobody does.
std::string Controller::SelectVictims(const Job& head, Standing standing, Line& line) {
  if (line.expectation.has_value() && line.expectation->at - now_ <= options_.soon)
    return WhoGivesWay(line.expectation->devices);
  const DeviceKind kind = KindOf(head);
  std::map<std::string, int32_t> used = UsedByQueue();
  const std::vector<NodeDevices>& free = FreeFor(head, line);
  std::vector<Job*> candidates;
  for (const JobId& id : active_) {
    Job& job = jobs_.at(id);
    const JobRecord& record = job.record;
    if (record.ranks.empty() || KindOf(job) != kind) continue;
    if (record.stop != StopKind::kNone) continue;
    const bool asks = record.state == JobState::kRunning && record.spec->scheduling.preemptible && now_ >= job.spared_until &&
                      job.replanning.steps_done > 0;
    if (asks) candidates.push_back(&job);
  }
  std::sort(candidates.begin(), candidates.end(), [](const Job* a, const Job* b) {
    const auto key = [](const Job& job) {
      return std::tuple(job.record.spec->scheduling.priority, Nanos(0) - job.replanning.began, -job.record.submission);
    };
    return key(*a) < key(*b);
  });
  const int32_t priority = head.record.spec->scheduling.priority;
  std::vector<Job*> victims;
  std::vector<std::vector<DeviceRef>> holders;
  for (Job* job : candidates) {
    const SchedulingSpec& scheduling = job->record.spec->scheduling;
    const auto config = queues_.find(scheduling.queue);
    const bool borrows = standing == Standing::kWithinQuota && scheduling.queue != head.record.spec->scheduling.queue &&
                         config != queues_.end() && config->second.quota > 0 && used[scheduling.queue] > config->second.quota;
    const bool outranked = scheduling.priority < priority &&
                           (standing == Standing::kWithinQuota || scheduling.queue == head.record.spec->scheduling.queue);
    if (!outranked && !borrows) continue;
    std::vector<DeviceRef> devices;
    for (const RankRecord& rank : job->record.ranks) {
      if (MayUse(head, kind, rank.where.node)) devices.push_back(rank.where);
    }
    if (devices.empty()) continue;
    used[scheduling.queue] -= static_cast<int32_t>(job->record.ranks.size());
    victims.push_back(job);
    holders.push_back(std::move(devices));
  }
  const auto chosen = WhoMakesRoom(free, holders, [&](const std::vector<NodeDevices>& devices) { return Fits(head, devices); });
  if (!chosen.has_value()) return "";
  std::vector<std::string> names;
  for (const size_t i : *chosen) {
    names.push_back(NameText(*victims[i]));
    victims[i]->makes_room = true;
    AskToGiveWay(*victims[i], StopKind::kPreempt, EventKind::kPreempted,
                 absl::StrCat("makes room for ", NameText(head), " of priority ", priority, " in queue ",
                              head.record.spec->scheduling.queue));
  }
  return absl::StrJoin(names, ", ");
}

// True if some waiting job comes before this one, which has trained.
bool Controller::SomeoneIsBefore(const Job& job) const {
  return std::any_of(ready_.begin(), ready_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [&](const auto& key) {
      const Job& other = jobs_.at(by_submission_.at(key.second));
      return key < KeyOf(job.record) && !other.structural && !other.over_quota;
    });
  });
}

bool Controller::SomeoneWaits() const {
  return std::any_of(ready_.begin(), ready_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [&](const auto& key) {
      const Job& other = jobs_.at(by_submission_.at(key.second));
      return !other.structural && !other.over_quota;
    });
  });
}

std::vector<PendingReason> Controller::WhyNotReady(const Job& job) const {
  const JobRecord& record = job.record;
  std::vector<PendingReason> reasons;
  if (record.held) reasons.push_back({"held", absl::StrCat("is held; 'lynxctl release ", record.id.value, "' lets it begin")});
  if (!record.waits_for.empty()) {
    std::vector<std::string> names;
    for (const JobId& id : record.waits_for) {
      if (jobs_.contains(id)) names.push_back(NameText(jobs_.at(id)));
    }
    reasons.push_back({"dependency", absl::StrCat("begins after ", absl::StrJoin(names, ", "), " has succeeded")});
  }
  return reasons;
}

std::pair<int32_t, int32_t> Controller::CountAttached(DeviceKind kind) const {
  int32_t all = 0, cordoned = 0;
  for (const auto& [name, node] : nodes_) {
    if (!node.worker_attached()) continue;
    for (const Device& device : node.agent.devices) {
      if (device.kind != kind) continue;
      ++all;
      cordoned += cordons_.contains(name) ? 1 : 0;
    }
  }
  return {all, cordoned};
}

// Reasons that waiting does not remove come first.
std::vector<PendingReason> Controller::WhyWaits(const Job& job, Standing standing, Line& line) {
  const JobRecord& record = job.record;
  const DeviceKind kind = KindOf(job);
  const int32_t needed = job.plan != nullptr && !IsElastic(job) ? job.plan->layout.ranks() : DemandOf(job).min_ranks;
  if (!line.attached.contains(kind)) line.attached[kind] = CountAttached(kind);
  const auto [all, cordoned] = line.attached.at(kind);
  const std::vector<NodeDevices>& free = FreeFor(job, line);
  const int32_t count = CountDevices(free);
  const std::string waits = absl::StrCat("waits for ", CountText(needed, kind));
  const std::string have = absl::StrCat("; of ", CountText(all, kind), " ", count, count == 1 ? " is free" : " are free",
                                        cordoned > 0 ? absl::StrCat(", and ", cordoned, " of cordoned nodes") : "");
  std::vector<PendingReason> reasons;
  if (job.structural && needed > all) {
    reasons.push_back({"structural", absl::StrCat(waits, ", but the attached nodes have ", all,
                                                  "; attach more nodes or ask for fewer ranks")});
  } else if (job.structural) {
    reasons.push_back(
        {"structural",
         absl::StrCat(
             waits, job.plan != nullptr || DemandOf(job).group > 1 ? " with its tensor-parallel groups inside nodes" : "", have,
             record.excluded.empty() ? "" : absl::StrCat(", without its excluded nodes ", NodeNames(record.excluded)))});
  }
  const std::string& queue = record.spec->scheduling.queue;
  const auto config = queues_.find(queue);
  if (standing == Standing::kOverQuota && needed > config->second.quota) {
    reasons.push_back({"structural", absl::StrCat("needs ", CountText(needed, kind), ", more than the quota of ",
                                                  config->second.quota, " of queue ", queue, ", which does not borrow")});
  } else if (standing == Standing::kOverQuota) {
    reasons.push_back({"quota", absl::StrCat("queue ", queue, " has a quota of ", CountText(config->second.quota, kind),
                                             " and does not borrow; waits for ", CountText(needed, kind), " of it")});
  } else if (standing == Standing::kBorrows) {
    reasons.push_back({"quota", absl::StrCat("would borrow: queue ", queue, " has a quota of ",
                                             CountText(config->second.quota, kind), ", and those within theirs come before")});
  }
  if (line.head != nullptr && line.head != &job) {
    reasons.push_back({"ahead", absl::StrCat(Plural(line.ahead, "job"), line.ahead == 1 ? " is" : " are",
                                             " ahead, the first is ", NameText(*line.head))});
  }
  if (!job.structural && standing != Standing::kOverQuota) {
    const char* inside = count >= needed && line.head == &job ? " with its tensor-parallel groups inside nodes" : "";
    reasons.push_back({"capacity", absl::StrCat(waits, inside, have)});
    if (line.head == &job && !line.room.empty()) reasons.push_back({"capacity", absl::StrCat(line.room, " gives way to it")});
  }
  if (count > 0 && count < needed && job.plan == nullptr) {
    Demand fewer = DemandOf(job);
    const ParallelSpec& pinned = record.spec->parallel;
    fewer.min_ranks = std::max(1, pinned.tp) * std::max(1, pinned.pp) * std::max(1, pinned.dp);
    const auto possible = Reserve(free, fewer);
    if (possible.has_value() && static_cast<int32_t>(possible->devices.size()) < needed) {
      reasons.push_back(
          {"near-miss", absl::StrCat("could begin now with ", Plural(static_cast<int64_t>(possible->devices.size()), "rank"))});
    }
  }
  return reasons;
}

void Controller::SetPending(Job& job, std::vector<PendingReason> pending) {
  std::vector<std::string> texts;
  for (const PendingReason& reason : pending) texts.push_back(reason.text);
  job.record.pending = std::move(pending);
  const std::string reason = absl::StrJoin(texts, "; ");
  if (reason.empty() || job.record.reason == reason) return;
  job.record.reason = reason;
  notices_[job.record.id];
}

std::vector<Controller::QueueView> Controller::Queues() const {
  std::map<std::string, QueueView> views;
  views[kDefaultQueue].config.name = kDefaultQueue;
  for (const auto& [name, config] : queues_) views[name].config = config;
  for (const auto& [name, used] : UsedByQueue()) views[name].devices = used;
  for (const JobId& id : unfinished_) {
    const JobRecord& record = jobs_.at(id).record;
    QueueView& view = views[record.spec->scheduling.queue];
    (record.state == JobState::kQueued ? view.waiting : view.running) += 1;
  }
  std::vector<QueueView> all;
  for (auto& [name, view] : views) {
    view.config.name = name;
    all.push_back(std::move(view));
  }
  return all;
}

}  // namespace lynx
