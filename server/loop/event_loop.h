// EventLoop: the server's one owner thread. It hands queued events to the controller, commits what they decided in one
// transaction, then carries out the rest. What people ask for comes before the reports of nodes that came meanwhile, and is
// answered after few of them, however many wait. While the store refuses to write, new jobs and cancellations are refused with
// its reason, everything else waits, and the write is tried again; what runs on the nodes goes on. Of those that were decided
// in the very round whose write failed, a new job is undone, and the answer says so; a cancellation stands, and the answer says
// that it takes effect when the server can write.
//
// Post, PostAlways and Run: any thread. The controller, and all callbacks: the owner thread only.
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

namespace lynx {

struct EventLoopOptions {
  size_t queue_limit = 10'000;
  Nanos tick{250'000'000};
  Nanos retry{1'000'000'000};  // of a commit that failed
};

class EventLoop {
 public:
  // Makes durable effects durable, all or none.
  using Commit = std::function<absl::Status(const std::vector<Effect>&)>;
  // Carries out an effect that is not durable. Must not block.
  using Carry = std::function<void(Effect&)>;
  using Task = std::function<void()>;

  EventLoop(EventLoopOptions options, Controller& controller, const Clock& clock, Commit commit, Carry carry);
  ~EventLoop() { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // `first`: of the controller's Restore. `on_tick` runs after every tick.
  void Start(std::vector<Effect> first, Task on_tick);
  // What is queued is still done; later posts are refused. Idempotent.
  void Stop();

  // False, and nothing happens, when the queue is full or the loop stops. `after` runs when the event has been handled,
  // and what it decided is durable unless the store fails.
  bool Post(EventBody event, Task after = nullptr);
  // Of a node, which sends no other before this one is handled: not held to the queue's limit, so that what people ask for is
  // refused first where there is too much. False when the loop stops.
  bool PostReport(EventBody event, Task after);
  // With a record of who asked: time and outcome are filled in, and it is written in the transaction of what was decided. While
  // the store does not write nothing is asked of the controller, and nothing recorded.
  bool Post(EventBody event, AuditRecord record);
  // For events that must not be lost, of which there are few: not held to the queue's limit.
  void PostAlways(EventBody event);
  void PostAlways(EventBody event, AuditRecord record);
  // Writes the record with the next transaction. It is dropped when the queue is full or the store does not write.
  void Record(AuditRecord record);
  // Runs `task` on the owner thread when everything that was posted before has been handled. False as Post.
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
  std::deque<Item> asked_;                 // by people; guarded by mutex_
  std::atomic<bool> someone_asks_{false};  // asked_ is not empty; changed with mutex_ held
  std::deque<Item> queue_;                 // everything else; guarded by mutex_
  bool stopping_ = false;                  // guarded by mutex_

  // Of the owner thread.
  EffectList pending_;    // durable, not yet written
  EffectList held_;       // to be carried out when pending_ is written
  absl::Status failing_;  // why the store does not write; OK: it does
  Nanos retry_at_;

  std::thread thread_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_LOOP_EVENT_LOOP_H_
