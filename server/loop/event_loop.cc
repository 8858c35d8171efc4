// See event_loop.h.
#include "server/loop/event_loop.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "node/log.h"

namespace lynx::server {
namespace {

// In a round with a request of a person, the owner thread handles at most this many other items. That takes some milliseconds.
// At this rate the owner thread handles more reports per second than 10,000 nodes send.
constexpr size_t kOthersMeanwhile = 256;

JobId JobOf(const Effect& durable) {
  if (const auto* insert = std::get_if<InsertJob>(&durable)) return insert->job.id;
  if (const auto* update = std::get_if<UpdateJob>(&durable)) return update->job.id;
  if (const auto* event = std::get_if<InsertEvent>(&durable)) return event->job;
  if (const auto* plan = std::get_if<InsertPlan>(&durable)) return plan->job;
  if (const auto* trace = std::get_if<InsertTrace>(&durable)) return trace->job;
  if (const auto* checkpoint = std::get_if<InsertCheckpoint>(&durable)) return checkpoint->job;
  if (const auto* gone = std::get_if<DeleteJob>(&durable)) return gone->job;
  if (const auto* audit = std::get_if<InsertAudit>(&durable)) return audit->job;
  return JobId();  // the effect is about a node or a queue, not about a job
}

// Fills in the time and the outcome of the audit record. The effects tell the outcome.
InsertAudit Answered(AuditRecord record, const std::vector<Effect>& effects, Nanos now) {
  record.time = now;
  SetOutcome(record, absl::OkStatus());
  JobId job;
  for (const Effect& effect : effects) {
    const auto* reply = std::get_if<Reply>(&effect);
    if (reply == nullptr) continue;
    SetOutcome(record, reply->status);
    if (reply->status.ok()) job = reply->job;
    if (!reply->job.value.empty()) record.target = reply->job.value;
    if (reply->existed) record.detail = "it had been submitted before";
  }
  return {std::move(record), job};
}

}  // namespace

EventLoop::EventLoop(EventLoopOptions options, Controller& controller, const Clock& clock, Commit commit, Carry carry)
    : options_(options), controller_(controller), clock_(clock), commit_(std::move(commit)), carry_(std::move(carry)) {}

void EventLoop::Start(std::vector<Effect> first, Task on_tick) {
  thread_ = std::thread([this, first = std::move(first), on_tick = std::move(on_tick)] { Main(first, on_tick); });
}

void EventLoop::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool EventLoop::Enqueue(Item item, bool always) {
  std::lock_guard lock(mutex_);
  const size_t length = asked_.size() + queue_.size();
  if (stopping_ || (!always && length >= options_.queue_limit)) return false;
  const bool by_people = ByPeople(item);
  (by_people ? asked_ : queue_).push_back(std::move(item));
  if (by_people) someone_asks_ = true;
  if (length == 0) wake_.notify_all();
  return true;
}

bool EventLoop::Post(EventBody event, Task after) {
  return Enqueue({.event = std::move(event), .is_event = true, .task = std::move(after)}, false);
}
bool EventLoop::PostReport(EventBody event, Task after) {
  return Enqueue({.event = std::move(event), .is_event = true, .task = std::move(after)}, true);
}
bool EventLoop::Post(EventBody event, AuditRecord record) {
  return Enqueue({.event = std::move(event), .is_event = true, .record = std::move(record)}, false);
}
void EventLoop::PostAlways(EventBody event, AuditRecord record) {
  Enqueue({.event = std::move(event), .is_event = true, .record = std::move(record)}, true);
}
void EventLoop::Record(AuditRecord record) { Enqueue({.record = std::move(record)}, false); }
void EventLoop::PostAlways(EventBody event) { Enqueue({.event = std::move(event), .is_event = true}, true); }
bool EventLoop::Run(Task task) { return Enqueue({.task = std::move(task)}, false); }
void EventLoop::RunAlways(Task task) { Enqueue({.task = std::move(task)}, true); }

size_t EventLoop::QueueLength() const {
  std::lock_guard lock(mutex_);
  return asked_.size() + queue_.size();
}

// Waits for items, at most until the next tick is due. Sets `last` if the loop stops: no more items will come after these.
std::deque<EventLoop::Item> EventLoop::NextRound(std::chrono::steady_clock::time_point next_tick, bool& last) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, next_tick, [this] { return stopping_ || !asked_.empty() || !queue_.empty(); });
  std::deque<Item> items = std::exchange(asked_, {});
  someone_asks_ = false;
  for (Item& item : std::exchange(queue_, {})) items.push_back(std::move(item));
  last = stopping_;
  return items;
}

// Requests of people are answered when the round ends. So a round with such a request ends after a few other items, and the
// rest is left for the next round. A round without such a request handles everything, because each round costs one commit.
void EventLoop::HandleRound(std::deque<Item> items, bool last, std::vector<Task>& tasks) {
  bool asked = false;
  for (size_t others = 0; !items.empty(); items.pop_front()) {
    Item& item = items.front();
    if (ByPeople(item)) {
      asked = true;
    } else if (++others > kOthersMeanwhile && (asked || someone_asks_) && !last) {
      break;
    }
    if (item.is_event) {
      Handle(std::move(item.event), std::move(item.record));
    } else if (item.record.has_value() && failing_.ok()) {
      pending_.Append(InsertAudit{*std::move(item.record), JobId()});
    }
    if (item.task) tasks.push_back(std::move(item.task));
  }
  if (items.empty()) return;
  const std::lock_guard lock(mutex_);
  queue_.insert(queue_.begin(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
}

void EventLoop::Main(std::vector<Effect> first, const Task& on_tick) {
  using SteadyClock = std::chrono::steady_clock;
  Take(std::move(first));
  Flush();
  auto next_tick = SteadyClock::now();
  while (true) {
    bool last = false;
    std::deque<Item> items = NextRound(next_tick, last);
    std::vector<Task> tasks;
    HandleRound(std::move(items), last, tasks);
    const bool tick = SteadyClock::now() >= next_tick;
    if (tick) {
      next_tick = SteadyClock::now() + std::chrono::nanoseconds(options_.tick.value);
      Handle(Tick{});
    }
    Flush();
    for (const Task& task : tasks) task();
    if (tick && on_tick) on_tick();
    if (last) return;
  }
}

void EventLoop::Handle(EventBody event, std::optional<AuditRecord> record) {
  if (!failing_.ok() && Refused(event)) return;
  std::vector<Effect> effects = controller_.Step({clock_.Monotonic(), clock_.Wall(), std::move(event)});
  if (record.has_value()) effects.push_back(Answered(*std::move(record), effects, clock_.Wall()));
  Take(std::move(effects));
}

// Called while the store cannot write: refuses new jobs and cancellations. Returns true if the event is such a request.
bool EventLoop::Refused(const EventBody& event) {
  int64_t request = 0;
  if (const auto* submitted = std::get_if<JobSubmitted>(&event)) request = submitted->request;
  if (const auto* cancel = std::get_if<CancelRequested>(&event)) request = cancel->request;
  if (request == 0) return false;
  Effect reply = Reply{.request = request, .status = failing_};
  carry_(reply);
  return true;
}

void EventLoop::Take(std::vector<Effect> effects) {
  for (Effect& effect : effects) {
    if (IsDurable(effect)) {
      pending_.Append(std::move(effect));
    } else if (std::holds_alternative<StepRecorded>(effect) || std::holds_alternative<RenewLease>(effect)) {
      carry_(effect);  // these effects do not depend on the store
    } else {
      held_.Append(std::move(effect));
    }
  }
}

void EventLoop::Flush() {
  const bool early = !failing_.ok() && clock_.Monotonic() < retry_at_;
  if (!doubtful_.empty() && (early || !SettleDoubt())) return;
  if (!pending_.empty()) {
    if (early) return;
    const absl::Status status = commit_(pending_.Get());
    if (status.code() == absl::StatusCode::kAborted) {
      doubtful_ = pending_.Take();
      Fails(status);
      return;
    }
    if (!status.ok()) {
      CommitFailed(status);
      return;
    }
    pending_.clear();
  }
  if (!failing_.ok()) LogInfo("the store writes again");
  failing_ = absl::OkStatus();
  for (Effect& effect : held_.Take()) carry_(effect);
}

// Repeats the commit for which it is unknown whether it was written. Returns true if it is written now.
bool EventLoop::SettleDoubt() {
  const absl::Status status = commit_(doubtful_);
  if (status.code() == absl::StatusCode::kAborted) {
    Fails(status);
    return false;
  }
  std::vector<Effect> settled = std::exchange(doubtful_, {});
  if (status.ok()) return true;
  // Now it is known that nothing of the commit was written. Its effects come before the effects that were decided after it.
  std::vector<Effect> later = pending_.Take();
  for (std::vector<Effect>* effects : {&settled, &later}) {
    for (Effect& effect : *effects) pending_.Append(std::move(effect));
  }
  CommitFailed(status);
  return false;
}

void EventLoop::Fails(const absl::Status& status) {
  if (failing_.ok()) {
    LogError("{}; new jobs are refused until it writes again", std::string(status.message()));
  }
  // If the result of an earlier commit is still unknown, callers are told that the store cannot write.
  const absl::StatusCode code = status.code() == absl::StatusCode::kAborted ? absl::StatusCode::kUnavailable : status.code();
  failing_ = absl::Status(
      code, absl::StrCat(std::string(status.message()), "; nothing was changed: try again when the server can write"));
  retry_at_ = clock_.Monotonic() + options_.retry;
}

void EventLoop::CommitFailed(const absl::Status& status) {
  Fails(status);
  std::set<JobId> lost;
  for (const Effect& effect : pending_.Get()) {
    if (std::holds_alternative<InsertJob>(effect)) lost.insert(JobOf(effect));
  }
  pending_.EraseIf([&](const Effect& effect) { return lost.contains(JobOf(effect)); });
  AnswerUnwritten(status, lost);
  for (const JobId& job : lost) Handle(SubmissionLost{job});
}

// Answers the requests of this round although their changes are not written, because nobody knows when the store can write
// again.
void EventLoop::AnswerUnwritten(const absl::Status& status, const std::set<JobId>& lost) {
  std::set<JobId> unwritten;
  for (const Effect& effect : pending_.Get()) {
    if (!std::holds_alternative<InsertAudit>(effect)) unwritten.insert(JobOf(effect));
  }
  for (Effect& effect : held_.Take()) {
    auto* reply = std::get_if<Reply>(&effect);
    if (reply == nullptr) {
      held_.Append(std::move(effect));
      continue;
    }
    if (reply->status.ok() && lost.contains(reply->job)) {
      reply->status = failing_;
    } else if (reply->status.ok() && !reply->existed && unwritten.contains(reply->job)) {
      reply->status = absl::Status(
          status.code(), absl::StrCat(std::string(status.message()), "; the change",
                                      reply->job.value.empty() ? "" : absl::StrCat(" of job ", reply->job.value),
                                      " is decided and takes effect when the server can write: no need to ask again"));
    }
    carry_(effect);
  }
}

}  // namespace lynx::server
