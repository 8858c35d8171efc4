#include "server/controller/jobs/queue_pass.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/controller/state/reason_text.h"

namespace lynx::server {
namespace {

// One pass examines at most this many jobs of each queue. The jobs behind them wait for a later pass.
constexpr size_t kDepth = 100;
// One pass examines at most this many jobs of each user that wait for the user's quota, and no other jobs of the user behind
// them.
constexpr size_t kDepthBeyondQuota = 10;
// The assumed time until devices become free if nobody knows when their job ends.
constexpr Nanos kUnknown{int64_t{1} << 60};
constexpr size_t kFewNodes = 256;
constexpr Nanos kPassPerNode{20'000};
constexpr Nanos kPassEvery{5'000'000'000};

}  // namespace

// The findings of one pass over the queue.
struct QueuePass::PassState {
  const LiveJob* head = nullptr;           // the first job that must wait
  std::optional<Expectation> expectation;  // when the head can begin and on which devices
  std::string room;                        // names of the jobs that give way to the head
  int64_t ahead = 0;                       // number of waiting jobs before the present one
  std::map<DeviceKind, DevicePool::AttachedCount> attached;
  std::vector<NodeDevices> own;  // free devices without those of the nodes that the present job excludes
};

QueuePass::QueuePass(const Parts& parts)
    : options_(parts.options), step_(parts.step), jobs_(parts.jobs), nodes_(parts.nodes), devices_(parts.devices),
      waiting_(parts.waiting), planning_(parts.planning), memory_(parts.memory), generations_(parts.generations),
      stopping_(parts.stopping), replanner_(parts.replanner) {}

void QueuePass::RunIfChanged() {
  if (!step_.queue_changed() || step_.now() < not_before_) return;
  step_.QueueIsLookedAt();
  Schedule();
  // A pass over the queue looks at all nodes. With thousands of nodes this takes long, so not every report starts a pass.
  const size_t nodes = nodes_.all().size();
  if (nodes > kFewNodes) not_before_ = step_.now() + kPassPerNode * static_cast<int64_t>(nodes);
}

void QueuePass::OnTick() {
  if (waiting_.ready().empty() || step_.now() < next_look_) return;
  next_look_ = step_.now() + kPassEvery;
  step_.LookAtQueue();
}

void QueuePass::Schedule() {
  SettleDependencies();
  ForgetFree();
  while (Pass()) {}
  ForgetFree();
  replanner_.LookForMore();
}

// Updates the jobs that wait for other jobs to succeed. If one of the other jobs has succeeded, it is taken off the list. If
// one of them has ended in another way, the job that waits for it is cancelled.
void QueuePass::SettleDependencies() {
  const std::set<JobId> dependents = waiting_.dependents();
  for (const JobId& id : dependents) {
    LiveJob& job = jobs_.At(id);
    std::vector<JobId>& waits_for = job.record.waits_for;
    const size_t before = waits_for.size();
    const auto state = [&](const JobId& other) {  // unknown `other`: its submission was lost, and so this job's too
      return jobs_.Contains(other) ? jobs_.At(other).record.state : JobState::kQueued;
    };
    std::erase_if(waits_for, [&](const JobId& other) { return state(other) == JobState::kSucceeded; });
    const auto ended =
        std::find_if(waits_for.begin(), waits_for.end(), [&](const JobId& other) { return IsFinal(state(other)); });
    if (ended != waits_for.end()) {
      const LiveJob& other = jobs_.At(*ended);
      generations_.EndJob(job, JobState::kCancelled, EventKind::kCancelled,
                          absl::StrCat("it was to begin after ", NameText(other), ", which ",
                                       other.record.state == JobState::kFailed ? "has failed" : "was cancelled"));
      continue;
    }
    if (waits_for.size() == before) continue;
    step_.Touch(job);
    if (waits_for.empty()) waiting_.DependsNoMore(id);
    waiting_.SetReady(job);
    waiting_.SetPending(job, waiting_.WhyNotReady(job));
  }
}

void QueuePass::ForgetFree() {
  free_.clear();
  used_.reset();
}

// The jobs of the queue that this pass examines, in their order. Jobs that only wait for the quota of their user are not
// counted in kDepth: otherwise one user's jobs could hide those of all others.
std::vector<WaitingJob> QueuePass::FirstInLine(const std::string& queue,
                                               const std::set<std::pair<int32_t, int64_t>>& line) const {
  const auto config = devices_.queues().find(queue);
  const int32_t user_quota = config == devices_.queues().end() ? 0 : config->second.user_quota;
  const bool may_borrow = config == devices_.queues().end() || config->second.may_borrow;
  std::map<std::string, int64_t> asked;  // devices that a user has, or examined jobs of the user need
  std::map<std::string, size_t> beyond;  // examined jobs of a user that wait for the user's quota
  std::vector<WaitingJob> jobs;
  size_t depth = 0, never = 0;
  for (const auto& [priority, submission] : line) {
    const LiveJob& job = jobs_.OfSubmission(submission);
    const int32_t planned = job.plan != nullptr && !IsElastic(job) ? job.plan->layout.ranks() : devices_.MinRanksOf(job);
    const std::string& user = job.record.owner;
    if (user_quota > 0 && !may_borrow && planned > user_quota) {
      // The job can never begin, so other jobs of its user do not wait for it. It is still examined, to find the reason why it
      // waits.
      if (++never > kDepth) continue;
    } else if (user_quota > 0) {
      const auto has = used_->by_user.find({queue, user});
      int64_t& sum = asked.try_emplace(user, has == used_->by_user.end() ? 0 : has->second).first->second;
      sum += planned;
      if (sum > user_quota && ++beyond[user] > kDepthBeyondQuota) continue;
      if (sum <= user_quota) ++depth;
    } else {
      ++depth;
    }
    jobs.push_back({submission, planned, user});
    if (depth == kDepth) break;
  }
  return jobs;
}

std::vector<Turn> QueuePass::Turns() {
  if (!used_.has_value()) used_ = devices_.Used();
  std::map<std::string, std::vector<WaitingJob>> waiting;
  for (const auto& [queue, line] : waiting_.ready()) waiting[queue] = FirstInLine(queue, line);
  return OrderOfTurns(waiting, *used_, devices_.queues());
}

// Returns true if a job has begun, so that the whole queue must be looked at again.
bool QueuePass::Pass() {
  if (waiting_.ready().empty()) return false;
  PassState pass;
  std::vector<Turn> turns = Turns();
  if (const LiveJob* favoured = jobs_.Find(waiting_.favoured()); favoured != nullptr) {
    // The favoured job, for which other jobs gave way, comes first. Otherwise other jobs might take its devices, again and
    // again.
    const auto turn =
        std::find_if(turns.begin(), turns.end(), [&](const Turn& t) { return t.submission == favoured->record.submission; });
    if (turn != turns.end()) std::rotate(turns.begin(), turn, turn + 1);
  }
  for (const Turn& turn : turns) {
    LiveJob& job = jobs_.OfSubmission(turn.submission);
    job.record.expected_start = Nanos(0);
    job.queue.over_quota = turn.standing == Standing::kOverQuota;
    if (job.queue.over_quota) {
      waiting_.SetPending(job, WhyWaits(job, turn, pass));
      continue;
    }
    if (pass.head == nullptr) {
      if (TryHead(job, pass)) {
        TakeFromFree(job);
        return true;
      }
      job.queue.structural = IsStructural(job);
      if (!job.queue.structural || step_.now() < job.queue.line_until) BecomeHead(job, turn, pass);
    } else if (TryBackfill(job, pass)) {
      TakeFromFree(job);
      return true;
    }
    waiting_.SetPending(job, WhyWaits(job, turn, pass));
    ++pass.ahead;
  }
  return false;
}

// True if the job could not begin even if all devices were free.
bool QueuePass::IsStructural(const LiveJob& job) const {
  const std::vector<NodeDevices> attached = devices_.AttachedDevices(devices_.KindOf(job));
  return !devices_.Fits(job, WithoutNodes(attached, job.record.excluded)).has_value();
}

// Makes the job the head: the first job that must wait. Running jobs may have to give way to the head.
void QueuePass::BecomeHead(LiveJob& job, const Turn& turn, PassState& pass) {
  pass.head = &job;
  pass.expectation = Expect(job, pass);
  pass.room = SelectVictims(job, turn.standing, pass);
  if (!pass.room.empty()) {
    waiting_.SetFavoured(job.record.id);
  } else if (waiting_.favoured() == job.record.id) {
    waiting_.SetFavoured(JobId());  // the jobs that gave way have left, but their devices were not enough
  }
  if (pass.expectation.has_value() && pass.expectation->at - step_.now() < kUnknown)
    job.record.expected_start = step_.wall() + (pass.expectation->at - step_.now());
}

// Starts or plans the job on some of the devices of `free` if they are enough.
bool QueuePass::TryBegin(LiveJob& job, const std::vector<NodeDevices>& free) {
  if (job.plan == nullptr) {
    std::optional<Reservation> reservation = Reserve(free, devices_.DemandOf(job));
    if (!reservation.has_value()) return false;
    job.planning.tried_kind = devices_.KindOf(job);
    planning_.BeginPlanning(job, *std::move(reservation));
    return true;
  }
  const int32_t needed = job.plan->layout.ranks();
  const bool too_many = IsElastic(job) && needed > devices_.DemandOf(job).max_ranks;
  const std::optional<std::vector<DeviceRef>> placement = devices_.PlacementOn(free, job);
  if (placement.has_value() && !too_many && devices_.IsTooLarge(job, *placement)) {
    return memory_.PlanForLess(job, free, "the plan that it has takes more than there is");
  }
  if (placement.has_value() && !too_many) {
    generations_.Start(job, *placement, EventKind::kPlaced,
                       absl::StrCat(needed, " ranks on ", NodeNames(*placement), ", after a wait for devices"));
    return true;
  }
  return planning_.ReplanForLess(job, free, absl::StrCat("of the ", needed, " devices of its plan not all are free"));
}

// The free devices that the job could have. The list for each kind of device is made once and shared by all waiting jobs. The
// result is valid until the next call.
const std::vector<NodeDevices>& QueuePass::FreeFor(const LiveJob& job, PassState& pass) {
  const DeviceKind kind = devices_.KindOf(job);
  auto known = free_.find(kind);
  if (known == free_.end()) known = free_.emplace(kind, devices_.FreeDevices(kind, nullptr)).first;
  if (job.record.excluded.empty()) return known->second;
  return pass.own = WithoutNodes(known->second, job.record.excluded);
}

// Removes the devices that the job has just got from the free devices.
void QueuePass::TakeFromFree(const LiveJob& job) {
  if (used_.has_value()) {
    const std::string& queue = job.record.spec->scheduling.queue;
    used_->by_queue[queue] += DevicesUsed(job);
    used_->by_user[{queue, job.record.owner}] += DevicesUsed(job);
  }
  std::map<NodeId, std::vector<int32_t>> taken;
  for (const DeviceRef& device : job.planning.reservation.devices) taken[device.node].push_back(device.device);
  for (const RankRecord& rank : job.record.ranks) taken[rank.where.node].push_back(rank.where.device);
  // Nodes without free devices stay in the list. Removing them would move thousands of entries, which takes longer than the
  // selection of devices.
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

bool QueuePass::TryHead(LiveJob& job, PassState& pass) {
  if (TryBegin(job, FreeFor(job, pass))) return true;
  if (!MakeSpeculatorsLeave(job, pass)) return false;
  ForgetFree();
  return TryBegin(job, FreeFor(job, pass));
}

// Ends the speculative planning of other jobs if `job` can begin on their devices. Those jobs are planned only to find out
// whether they would end before the first waiting job begins. Returns true if their planning has been ended.
bool QueuePass::MakeSpeculatorsLeave(const LiveJob& job, PassState& pass) {
  const DeviceKind kind = devices_.KindOf(job);
  std::vector<DeviceRef> held;
  std::vector<JobId> speculators;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& other = jobs_.At(id);
    if (!other.planning.speculative || other.record.state != JobState::kPlanning || devices_.KindOf(other) != kind) continue;
    held.insert(held.end(), other.planning.reservation.devices.begin(), other.planning.reservation.devices.end());
    speculators.push_back(id);
  }
  std::erase_if(held, [&](const DeviceRef& device) { return !devices_.MayUse(job, kind, device.node); });
  if (held.empty() || !devices_.Fits(job, With(FreeFor(job, pass), held, FactsOf(kind))).has_value()) return false;
  for (const JobId& id : speculators) {
    LiveJob& other = jobs_.At(id);
    other.planning.speculative = false;
    planning_.EndPlanning(other);
    waiting_.Enqueue(other);
    step_.SetState(other, JobState::kQueued, EventKind::kQueued,
                   absl::StrCat("makes room for ", NameText(job), ", which is before it"));
  }
  return true;
}

// Starts or plans the job although the first job of the queue waits. The job may begin if it uses devices that the first job
// will not get, or if it ends before the first job begins. A job without a plan is planned to find out how long it takes.
bool QueuePass::TryBackfill(LiveJob& job, PassState& pass) {
  const std::vector<NodeDevices>& free = FreeFor(job, pass);
  if (devices_.KindOf(job) != devices_.KindOf(*pass.head)) return TryBegin(job, free);
  if (!pass.expectation.has_value() || !devices_.Fits(job, free).has_value()) return false;
  if (TryBegin(job, Without(free, pass.expectation->devices))) return true;
  const Nanos window = pass.expectation->at - step_.now();
  if (window >= kUnknown) return false;
  const Nanos limit = job.record.spec->scheduling.time_limit;
  const bool limited = limit > Nanos(0) && limit - TrainedBy(job, step_.now()) <= window;
  if (limited) return TryBegin(job, free);
  // The remaining time is computed from the present plan, so the job must start with that plan.
  if (job.plan != nullptr && Remaining(job, step_.now()) <= window && devices_.PlacementOn(free, job).has_value())
    return TryBegin(job, free);
  if (job.plan != nullptr || window <= options_.soon) return false;
  job.planning.speculative = true;  // the plan will show how long the job takes
  return TryBegin(job, free);
}

NodeFacts QueuePass::FactsOf(DeviceKind kind) const {
  return [this, kind](const NodeId& name) { return devices_.FactsOf(name, kind); };
}

// Returns the time at which the job would begin if no other job passed it, and the devices that it would get.
std::optional<Expectation> QueuePass::Expect(const LiveJob& job, PassState& pass) {
  const DeviceKind kind = devices_.KindOf(job);
  std::vector<Release> releases;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& other = jobs_.At(id);
    if (devices_.KindOf(other) != kind) continue;
    const StopKind stop = other.record.stop;
    const bool leaves = stop == StopKind::kCancel || stop == StopKind::kPreempt || stop == StopKind::kMove ||
                        stop == StopKind::kTimeLimit || stop == StopKind::kLeave;
    std::set<DeviceRef> own;
    for (const RankRecord& rank : other.record.ranks) own.insert(rank.where);
    Release release{.devices = {own.begin(), own.end()}}, planned{.at = step_.now() + kUnknown};
    release.at = leaves ? step_.now() : own.empty() ? planned.at : step_.now() + Remaining(other, step_.now());
    for (const DeviceRef& device : other.planning.reservation.devices) {
      if (!own.contains(device)) planned.devices.push_back(device);
    }
    releases.push_back(std::move(release));
    releases.push_back(std::move(planned));
  }
  for (Release& release : releases) {
    std::erase_if(release.devices, [&](const DeviceRef& device) { return !devices_.MayUse(job, kind, device.node); });
  }
  return WhenFits(FreeFor(job, pass), std::move(releases), FactsOf(kind),
                  [&](const std::vector<NodeDevices>& free) { return devices_.Fits(job, free); });
}

// Names of the jobs that are giving way and have ranks on these devices.
std::string QueuePass::WhoGivesWay(const std::vector<DeviceRef>& devices) const {
  std::vector<std::string> names;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& job = jobs_.At(id);
    const bool has = std::any_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
      return std::find(devices.begin(), devices.end(), rank.where) != devices.end();
    });
    if (job.record.stop == StopKind::kPreempt && has) names.push_back(NameText(job));
  }
  return absl::StrJoin(names, ", ");
}

// True if the job gives its devices back to `head`, which is within its quotas: its queue has more than its quota, or its user
// has more than the user's quota there. Jobs of one queue do not give back to each other what their queue borrows, nor jobs of
// one user what the user borrows.
bool QueuePass::GivesBack(const LiveJob& job, const LiveJob& head, const UsedDevices& used) const {
  const std::string& queue = job.record.spec->scheduling.queue;
  const auto found = devices_.queues().find(queue);
  if (found == devices_.queues().end()) return false;
  const QueueConfig& config = found->second;
  const bool same_queue = queue == head.record.spec->scheduling.queue;
  if (!same_queue && config.quota > 0 && used.by_queue.at(queue) > config.quota) return true;
  const bool same_user = same_queue && job.record.owner == head.record.owner;
  return !same_user && config.user_quota > 0 && used.by_user.at({queue, job.record.owner}) > config.user_quota;
}

// Asks running, preemptible jobs to give way if the first job in line has a right to their devices. The first job has a right
// to devices of jobs with a lower priority in its own queue. If it is within its quotas, it also has a right to devices of jobs
// with a lower priority in other queues, and to devices that other queues or users borrow. If enough devices become free soon
// anyway, no job is asked. Returns the names of the jobs that give way; empty: there are none.
std::string QueuePass::SelectVictims(const LiveJob& head, Standing standing, PassState& pass) {
  if (pass.expectation.has_value() && pass.expectation->at - step_.now() <= options_.soon)
    return WhoGivesWay(pass.expectation->devices);
  const DeviceKind kind = devices_.KindOf(head);
  UsedDevices used = devices_.Used();
  const std::vector<NodeDevices>& free = FreeFor(head, pass);
  std::vector<LiveJob*> candidates;
  for (const JobId& id : jobs_.active()) {
    LiveJob& job = jobs_.At(id);
    const JobRecord& record = job.record;
    if (record.ranks.empty() || devices_.KindOf(job) != kind) continue;
    if (record.stop != StopKind::kNone) continue;
    const bool asks = record.state == JobState::kRunning && record.spec->scheduling.preemptible &&
                      step_.now() >= job.spared_until && job.replanning.steps_done > 0;
    if (asks) candidates.push_back(&job);
  }
  std::sort(candidates.begin(), candidates.end(), [](const LiveJob* a, const LiveJob* b) {
    const auto key = [](const LiveJob& job) {
      return std::tuple(job.record.spec->scheduling.priority, Nanos(0) - job.replanning.began, -job.record.submission);
    };
    return key(*a) < key(*b);
  });
  const int32_t priority = head.record.spec->scheduling.priority;
  std::vector<LiveJob*> victims;
  std::vector<std::vector<DeviceRef>> holders;
  for (LiveJob* job : candidates) {
    const SchedulingSpec& scheduling = job->record.spec->scheduling;
    const bool borrows = standing == Standing::kWithinQuota && GivesBack(*job, head, used);
    const bool outranked = scheduling.priority < priority &&
                           (standing == Standing::kWithinQuota || scheduling.queue == head.record.spec->scheduling.queue);
    if (!outranked && !borrows) continue;
    std::vector<DeviceRef> devices;
    for (const RankRecord& rank : job->record.ranks) {
      if (devices_.MayUse(head, kind, rank.where.node)) devices.push_back(rank.where);
    }
    if (devices.empty()) continue;
    used.by_queue[scheduling.queue] -= static_cast<int32_t>(job->record.ranks.size());
    used.by_user[{scheduling.queue, job->record.owner}] -= static_cast<int32_t>(job->record.ranks.size());
    victims.push_back(job);
    holders.push_back(std::move(devices));
  }
  const auto chosen = WhoMakesRoom(free, holders, FactsOf(kind),
                                   [&](const std::vector<NodeDevices>& devices) { return devices_.Fits(head, devices); });
  if (!chosen.has_value()) return "";
  std::vector<std::string> names;
  for (const size_t i : *chosen) {
    names.push_back(NameText(*victims[i]));
    victims[i]->makes_room = true;
    stopping_.AskToGiveWay(*victims[i], StopKind::kPreempt, EventKind::kPreempted,
                           absl::StrCat("makes room for ", NameText(head), " of priority ", priority, " in queue ",
                                        head.record.spec->scheduling.queue));
  }
  return absl::StrJoin(names, ", ");
}

// True if the job would fit into `free` if nodes were used together that otherwise may not be used in one job.
bool QueuePass::NeedsNodesTogether(const LiveJob& job, const std::vector<NodeDevices>& free) const {
  const bool any = std::any_of(free.begin(), free.end(), [](const NodeDevices& node) { return node.alone; });
  return any && !devices_.Fits(job, free).has_value() && devices_.Fits(job, AllTogether(free)).has_value();
}

// If the job could begin if all attached nodes were used together, says why they are not. "": there is another reason.
std::string QueuePass::WhyNodesAreApart(const LiveJob& job, DeviceKind kind) const {
  if (kind != DeviceKind::kCuda) return "";
  const std::vector<NodeDevices> attached = WithoutNodes(devices_.AttachedDevices(kind), job.record.excluded);
  if (!NeedsNodesTogether(job, attached)) return "";
  std::vector<std::string> names;
  for (const NodeDevices& node : attached) {
    if (node.alone) names.push_back(node.node.value);
  }
  constexpr size_t kNamed = 3;
  const size_t more = names.size() - std::min(names.size(), kNamed);
  names.resize(names.size() - more);
  return absl::StrCat("the rate of the network is not known for ", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      "; start their agents with --inter-node-rate, so that their GPUs are used together");
}

// The reason if the quota of the queue or of the user makes the job wait; nullopt: the job is within both quotas.
std::optional<PendingReason> QueuePass::WhyBeyondQuota(const LiveJob& job, const Turn& turn, int32_t needed,
                                                       DeviceKind kind) const {
  if (turn.standing == Standing::kWithinQuota) return std::nullopt;
  const std::string& queue = job.record.spec->scheduling.queue;
  const QueueConfig& config = devices_.queues().at(queue);
  const int32_t quota = turn.by_user ? config.user_quota : config.quota;
  const std::string& owner = job.record.owner;
  const std::string user = owner.empty() ? "each user" : absl::StrCat("user ", owner);
  // Text such as "queue research has a quota of 4 devices" or "user alice has a quota of 4 devices in queue research".
  const std::string has = absl::StrCat(turn.by_user ? user : absl::StrCat("queue ", queue), " has a quota of ",
                                       CountText(quota, kind), turn.by_user ? absl::StrCat(" in queue ", queue) : "");
  if (turn.standing == Standing::kBorrows) {
    return PendingReason{"quota", absl::StrCat("would borrow: ", has, ", and those within theirs come before")};
  }
  if (needed > quota) {
    return PendingReason{"structural",
                         absl::StrCat("needs ", CountText(needed, kind), ", more than the quota of ", quota, " of ",
                                      turn.by_user ? absl::StrCat(user, " in queue ", queue) : absl::StrCat("queue ", queue),
                                      ", which does not borrow")};
  }
  return PendingReason{"quota", absl::StrCat(has, turn.by_user ? ", which" : " and", " does not borrow; waits for ",
                                             CountText(needed, kind), " of it")};
}

// The reasons why the job waits. Reasons that waiting alone cannot end come first.
std::vector<PendingReason> QueuePass::WhyWaits(const LiveJob& job, const Turn& turn, PassState& pass) {
  const JobRecord& record = job.record;
  const DeviceKind kind = devices_.KindOf(job);
  const int32_t needed = job.plan != nullptr && !IsElastic(job) ? job.plan->layout.ranks() : devices_.DemandOf(job).min_ranks;
  if (!pass.attached.contains(kind)) pass.attached[kind] = devices_.CountAttached(kind);
  const auto [all, cordoned, plain] = pass.attached.at(kind);
  const std::vector<NodeDevices>& free = FreeFor(job, pass);
  const int32_t count = CountDevices(free);
  const std::string waits = absl::StrCat("waits for ", CountText(needed, kind));
  const std::string have = absl::StrCat("; of ", CountText(all, kind), " ", count, count == 1 ? " is free" : " are free",
                                        cordoned > 0 ? absl::StrCat(", and ", cordoned, " of cordoned nodes") : "",
                                        plain > 0 ? absl::StrCat(", and ", plain, " of nodes that cannot encrypt") : "");
  std::vector<PendingReason> reasons;
  if (job.queue.structural && needed > all) {
    reasons.push_back({"structural", absl::StrCat(waits, ", but the attached nodes have ", all,
                                                  "; attach more nodes or ask for fewer ranks")});
  } else if (job.queue.structural) {
    const std::string apart = WhyNodesAreApart(job, kind);
    reasons.push_back(
        {"structural",
         !apart.empty()
             ? absl::StrCat(waits, "; ", apart)
             : absl::StrCat(
                   waits,
                   job.plan != nullptr || devices_.DemandOf(job).group > 1 ? " with its tensor-parallel groups inside nodes"
                                                                           : "",
                   have,
                   record.excluded.empty() ? "" : absl::StrCat(", without its excluded nodes ", NodeNames(record.excluded)))});
  }
  if (std::optional<PendingReason> quota = WhyBeyondQuota(job, turn, needed, kind); quota.has_value()) {
    reasons.push_back(*std::move(quota));
  }
  if (pass.head != nullptr && pass.head != &job) {
    reasons.push_back({"ahead", absl::StrCat(Plural(pass.ahead, "job"), pass.ahead == 1 ? " is" : " are",
                                             " ahead, the first is ", NameText(*pass.head))});
  }
  if (!job.queue.structural && turn.standing != Standing::kOverQuota) {
    const char* inside = NeedsNodesTogether(job, free)          ? " of one node, or of nodes whose network's rate is known"
                         : count >= needed && pass.head == &job ? " with its tensor-parallel groups inside nodes"
                                                                : "";
    reasons.push_back({"capacity", absl::StrCat(waits, inside, have)});
    if (pass.head == &job && !pass.room.empty()) reasons.push_back({"capacity", absl::StrCat(pass.room, " gives way to it")});
  }
  if (count > 0 && count < needed && job.plan == nullptr) {
    Demand fewer = devices_.DemandOf(job);
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

}  // namespace lynx::server
