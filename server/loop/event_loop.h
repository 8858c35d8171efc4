// EventLoop: the thread that owns the controller and the store (the owner thread). It passes queued events to the controller,
// commits the durable effects in one transaction, then carries out the other effects. In each round it handles requests of
// people before reports of nodes. A request is answered after only a few reports, even if many reports wait.
//
// While the store cannot write, new jobs and cancellations are refused with the store's error. Everything else waits: the loop
// tries the write again, and ranks keep running. If the write of a round fails, the requests in this round are treated as
// follows. A new job is undone, and the answer says so. Any other change stays, and the answer says that it takes effect when
// the server can write.
//
// If the connection to the store is lost during a commit, nobody may know for a while whether its effects were written. Then
// the loop keeps these effects, answers none of their requests, and commits exactly them again, before anything else. The store
// writes them once, and then the requests are answered.
//
// Post, PostAlways and Run may be called on any thread. The controller and all callbacks run on the owner thread only.
#ifndef LYNX_SERVER_LOOP_EVENT_LOOP_H_
#define LYNX_SERVER_LOOP_EVENT_LOOP_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "server/controller/controller.h"
#include "server/loop/effect_list.h"
#include "server/values/events.h"

namespace lynx::server {

struct EventLoopOptions {
  size_t queue_limit = 10'000;  // largest number of items that wait for the owner thread
  Nanos tick{250'000'000};
  Nanos retry{1'000'000'000};  // pause before a failed commit is tried again
};

class EventLoop {
 public:
  // Writes all of the durable effects, or none of them. Aborted: it is not known whether they were written. Then it is called
  // again with the same effects, which it must not write twice.
  using Commit = std::function<absl::Status(const std::vector<Effect>&)>;
  // Carries out an effect that is not durable. Must not block.
  using Carry = std::function<void(Effect&)>;
  using Task = std::function<void()>;

  EventLoop(EventLoopOptions options, Controller& controller, const Clock& clock, Commit commit, Carry carry);
  ~EventLoop() { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // `first`: the effects of Controller::Restore. `on_tick` runs after every tick.
  void Start(std::vector<Effect> first, Task on_tick);
  // Stops the loop. Events that are queued are still handled; later posts are refused. Idempotent.
  void Stop();

  // Returns false and does nothing when the queue is full or the loop stops. `after` runs when the event has been handled; then
  // its effects are durable unless the store fails.
  bool Post(EventBody event, Task after = nullptr);
  // Posts the report of a node. The server reads the node's next report only after this one is handled, so the queue's limit
  // does not apply. Under overload people's requests are therefore refused first. Returns false when the loop stops.
  bool PostReport(EventBody event, Task after);
  // Posts an event with its audit record. The loop fills in the time and the outcome, and writes the record in the same
  // transaction as the event's effects. A JobSubmitted or CancelRequested that is refused because the store cannot write leaves
  // no record.
  bool Post(EventBody event, AuditRecord record);
  // Posts a rare event that must not be lost. The queue's limit does not apply.
  void PostAlways(EventBody event);
  void PostAlways(EventBody event, AuditRecord record);
  // Writes the record with the next transaction. The record is dropped if the queue is full or the store cannot write.
  void Record(AuditRecord record);
  // Runs `task` on the owner thread after everything that was posted earlier. Returns false in the same cases as Post.
  bool Run(Task task);
  void RunAlways(Task task);

  size_t QueueLength() const;

 private:
  struct Item {
    EventBody event = Tick{};
    bool is_event = false;
    Task task;
    std::optional<AuditRecord> record;
  };

  static bool ByPeople(const Item& item) { return item.is_event && item.record.has_value(); }
  bool Enqueue(Item item, bool always);
  std::deque<Item> NextRound(std::chrono::steady_clock::time_point next_tick, bool& last);
  void HandleRound(std::deque<Item> items, bool last, std::vector<Task>& tasks);
  void Main(std::vector<Effect> first, const Task& on_tick);
  void Handle(EventBody event, std::optional<AuditRecord> record = std::nullopt);
  void Take(std::vector<Effect> effects);
  void Flush();
  bool SettleDoubt();
  void Fails(const absl::Status& status);
  void CommitFailed(const absl::Status& status);
  void AnswerUnwritten(const absl::Status& status, const std::set<JobId>& lost);
  bool Refused(const EventBody& event);

  const EventLoopOptions options_;
  Controller& controller_;
  const Clock& clock_;
  const Commit commit_;
  const Carry carry_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> asked_;                 // requests of people; guarded by mutex_
  std::atomic<bool> someone_asks_{false};  // asked_ is not empty; changed only under mutex_
  std::deque<Item> queue_;                 // all other items; guarded by mutex_
  bool stopping_ = false;                  // guarded by mutex_

  // Only for the owner thread.
  EffectList pending_;            // durable effects that are not written yet
  std::vector<Effect> doubtful_;  // durable effects that may be written or not
  EffectList held_;               // effects to carry out when doubtful_ and pending_ are written
  absl::Status failing_;          // why the store cannot write; OK: the store can write
  Nanos retry_at_;

  std::thread thread_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_EVENT_LOOP_H_
