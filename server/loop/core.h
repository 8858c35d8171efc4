// ServerCore: the controller and everything around it except RPCs: the event loop, the store, the planning pool, metrics, the
// streams that carry desired states, and the replies that RPCs wait for.
//
// Only the owner thread (the thread of the event loop) may use store(), controller(), curves() and watchers(). metrics.h says
// who may use metrics(). The rest is thread-safe,
// except where a comment says otherwise.
#ifndef LYNX_SERVER_LOOP_CORE_H_
#define LYNX_SERVER_LOOP_CORE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "proto/convert.h"
#include "server/controller/controller.h"
#include "server/loop/event_loop.h"
#include "server/loop/job_curve_cache.h"
#include "server/loop/planning_pool.h"
#include "server/loop/report_stream.h"
#include "server/loop/serial_executor.h"
#include "server/loop/token_bucket.h"
#include "server/loop/watchers.h"
#include "server/metrics/health.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"
#include "server/values/leadership.h"
#include "server/wire/connection_key.h"

namespace lynx::server {

using AgentStream = ReportStream<v1::AgentReport, v1::AgentDesired>;
using WorkerStream = ReportStream<v1::WorkerReport, v1::WorkerDesired>;

struct CoreOptions {
  ControllerOptions controller;
  EventLoopOptions loop;
  PlanningPool::Planner planner;
  int planning_threads = 2;
  ConnectionKey connection_key;
  std::shared_ptr<ServerHealth> health;  // null: there is no health page
  // Says whether this server leads. While it does not, streams are ended instead of served. Null: it always leads.
  std::shared_ptr<const Leadership> leadership;
  // Called on the owner thread (see event_loop.h) when another server has taken over the store. From then on this server can no
  // longer write. Null: no call is made.
  std::function<void(const absl::Status&)> store_taken;
};

class ServerCore {
 public:
  // Loads the jobs from the store and starts the loop.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Start(CoreOptions options, std::unique_ptr<Store> store,
                                                           const Clock& clock);
  ~ServerCore() { Stop(); }

  // Ends streams and watchers, answers waiting requests with Unavailable, and ends the threads. Idempotent.
  void Stop();

  // Ends the streams of nodes and of watchers: this server does not lead at present.
  void EndStreams();
  // Whether this server leads at present.
  bool Leads() const { return options_.leadership == nullptr || options_.leadership->Leads(); }

  EventLoop& loop() { return *loop_; }
  Controller& controller() { return controller_; }
  Store& store() { return *store_; }
  Watchers& watchers() { return watchers_; }
  JobCurveCache& curves() { return curves_; }
  SerialExecutor& executor() { return executor_; }
  const Clock& clock() const { return clock_; }
  ServerMetrics& metrics() { return metrics_; }

  StreamTable<AgentStream>& agents() { return agents_; }
  StreamTable<WorkerStream>& workers() { return workers_; }
  int64_t NextStream() { return ++last_stream_; }

  // Registers `answer` for a new request, and returns the request's number. `answer` runs on the owner thread when the Reply to
  // the request is carried out. If the server stops first, `answer` runs with Unavailable.
  using Answer = std::function<void(const Reply&)>;
  int64_t Await(Answer answer);
  // Call this for a request that could not be posted. True: its answer will not be called. False: its answer has been called
  // already.
  bool Forget(int64_t request);
  // Calls the answer of the request that `reply` answers, on the owner thread.
  void Complete(const Reply& reply);

  // Writes the audit record of a refused call. Above a rate limit, refused calls are counted but not recorded, so that
  // strangers cannot fill the disk. Thread-safe.
  void Refused(AuditRecord record);

  // Makes an id for a new job: 12 random hexadecimal digits.
  JobId NewJobId();

  // Owner thread only. See JobMetrics.
  std::optional<double> GoodputOf(const JobId& job) const { return metrics_.jobs().GoodputOf(job); }

  // Owner thread only. Returns the plan of a job, with its programs on request; null: the job has no plan.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const JobRecord& job, PlanPrograms programs);

 private:
  ServerCore(CoreOptions options, std::unique_ptr<Store> store, const Clock& clock);

  void Carry(Effect& effect);
  void CarryNotice(NotifyWatchers& notice);
  void CountWritten(const std::vector<Effect>& effects);
  void CountRestored(const JobRecord& job);
  void CountRestoredCheckpoint(const JobRecord& job);
  void OnTick();
  void ReportTaken(const absl::Status& status);
  absl::Status TimedCommit(const std::vector<Effect>& effects);

  const CoreOptions options_;
  const Clock& clock_;
  std::unique_ptr<Store> store_;
  JobCurveCache curves_;
  Controller controller_;
  Nanos next_stats_, next_check_;  // monotonic times
  ServerMetrics metrics_;
  Watchers watchers_;
  StreamTable<AgentStream> agents_;
  StreamTable<WorkerStream> workers_;
  SerialExecutor executor_;
  std::atomic<int64_t> last_stream_{0};

  std::mutex mutex_;
  std::map<int64_t, Answer> answers_;  // guarded by mutex_
  int64_t last_request_ = 0;           // guarded by mutex_
  bool stopped_ = false;               // guarded by mutex_
  TokenBucket refusals_;               // guarded by mutex_
  int64_t refusals_left_out_ = 0;      // guarded by mutex_

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<PlanningPool> pool_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_CORE_H_
