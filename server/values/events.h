// What happens to the controller (events) and what it wants done (effects). Plain values: time arrives in the event, and
// everything that touches the world is an effect that someone else carries out. Thread-safe as values are.
//
// The one who carries effects out first commits all durable ones (InsertJob to PutQueue) of a Step in one
// transaction, then the others in their order. So a reply, an acknowledgement or an order to a node never precedes the
// decision that it rests on.
#ifndef LYNX_SERVER_VALUES_EVENTS_H_
#define LYNX_SERVER_VALUES_EVENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "server/values/audit.h"
#include "server/values/job.h"
#include "server/values/node_state.h"
#include "server/values/queue_config.h"

namespace lynx {

// ---- Events ----

struct JobSubmitted {
  int64_t request = 0;  // whom to Reply to
  JobId id;             // for the job if it is new; unique
  std::string idempotency_key;
  JobSpec spec;  // normalized and valid
  std::string spec_digest;
};
// The store could not take the job: it never was. Only for a job whose InsertJob was not committed.
struct SubmissionLost {
  JobId job;
};
struct CancelRequested {
  int64_t request = 0;
  JobId job;
  std::string reason;
  bool checkpoint = false;  // ranks that train write one first
  Nanos grace;              // they are ended without one after this; 0: after the usual time to give way
};
struct HoldRequested {
  int64_t request = 0;
  JobId job;
  std::string reason;
};
struct ReleaseRequested {
  int64_t request = 0;
  JobId job;
};
// nullopt: the node is to take ranks again.
struct CordonRequested {
  int64_t request = 0;
  NodeId node;
  std::optional<Cordon> cordon;  // `since` is filled in
};
struct QueueRequested {
  int64_t request = 0;
  QueueConfig queue;
};
// `stream` is a number of the connection, never used twice. `host` is the other end's address.
struct AgentReported {
  int64_t stream = 0;
  std::string host;
  AgentState state;
};
struct WorkerReported {
  int64_t stream = 0;
  std::string host;
  WorkerState state;
};
struct AgentGone {
  int64_t stream = 0;
};
struct WorkerGone {
  int64_t stream = 0;
};
struct PlanReady {
  JobId job;
  int64_t attempt = 0;  // of PlanJob
  std::variant<std::shared_ptr<const Plan>, Infeasible, absl::Status> result;
  std::shared_ptr<const ClusterTopology> cluster;  // that the plan was made for
  Nanos beside;  // predicted step of PlanJob::beside; 0: there is none, or nothing can be said of it
};
struct Tick {};

using EventBody = std::variant<JobSubmitted, SubmissionLost, CancelRequested, HoldRequested, ReleaseRequested, CordonRequested,
                               QueueRequested, AgentReported, WorkerReported, AgentGone, WorkerGone, PlanReady, Tick>;
struct Event {
  Nanos now;   // monotonic: for timers
  Nanos wall;  // since the Unix epoch: for people
  EventBody body;
};

// ---- Effects ----

struct InsertJob {
  JobRecord job;
};
// Everything of the record but the spec and the plan.
struct UpdateJob {
  JobRecord job;
};
struct InsertPlan {
  JobId job;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const ClusterTopology> cluster;  // that it was made for; null: not known
};
// In place of the one before.
struct InsertTrace {
  JobId job;
  StepTrace trace;
};
struct InsertEvent {
  JobId job;
  JobEvent event;
};
struct InsertCheckpoint {
  JobId job;
  Generation generation;
  int64_t step = 0;
  std::string path;
  Bytes bytes;
  Nanos time;  // wall clock
};

// All that is known of a job, which has ended.
struct DeleteJob {
  JobId job;
};

// nullopt: it has none any more.
struct PutCordon {
  NodeId node;
  std::optional<Cordon> cordon;
};
// A node that can be a witness has attached for the first time, or is forgotten.
struct PutNode {
  NodeId node;
  bool forgotten = false;
};
struct PutQueue {
  QueueConfig queue;
};

// Of a change that was asked for: written with it.
struct InsertAudit {
  AuditRecord record;
  JobId job;  // that the change is of; empty = none
};

// Why a job is planned: for the first time; to see whether it would end before the first in line begins; because devices were
// lost, or memory ran out; while it trains, for more devices, or since its nodes' speeds have changed.
enum class PlanTrigger : uint8_t { kFirst, kSpeculation, kLoss, kMemory, kGrowth, kDrift };
inline constexpr int kPlanTriggerCount = 6;
struct PlanJob {
  JobId job;
  int64_t attempt = 0;
  PlanRequest request;
  PlanTrigger trigger = PlanTrigger::kFirst;
  // What the job trains with meanwhile, and on what, by rank: the two are compared as things are now. Null: nothing.
  std::shared_ptr<const Plan> beside;
  ClusterTopology beside_on;
};
struct SendAgent {
  int64_t stream = 0;
  AgentDesired wish;
};
struct SendWorker {
  int64_t stream = 0;
  WorkerDesired wish;
};
// Rests on nothing that is stored: goes out at once.
struct RenewLease {
  int64_t stream = 0;
  LeaseRenewal renewal;
};
struct CloseStream {
  int64_t stream = 0;
  absl::Status reason;
};
struct NotifyWatchers {
  JobId job;
  std::vector<JobEvent> events;  // new ones; empty: only progress
};
struct Reply {
  int64_t request = 0;
  absl::Status status;
  JobId job;
  bool existed = false;
};
// For metrics.
struct StepRecorded {
  JobId job;
  int32_t rank = 0;
  int32_t stage = 0;
  bool new_step = false;  // the first report of this step, and further than the job ever was
  StepReport step;
};

// For metrics.
struct EvaluationRecorded {
  JobId job;
  double loss = 0;
};

using Effect = std::variant<InsertJob, UpdateJob, InsertPlan, InsertTrace, InsertEvent, InsertCheckpoint, DeleteJob,
                            InsertAudit, PutCordon, PutNode, PutQueue, PlanJob, SendAgent, SendWorker, RenewLease, CloseStream,
                            NotifyWatchers, Reply, StepRecorded, EvaluationRecorded>;

inline bool IsDurable(const Effect& effect) {
  return std::holds_alternative<InsertJob>(effect) || std::holds_alternative<UpdateJob>(effect) ||
         std::holds_alternative<InsertPlan>(effect) || std::holds_alternative<InsertTrace>(effect) ||
         std::holds_alternative<InsertEvent>(effect) || std::holds_alternative<InsertCheckpoint>(effect) ||
         std::holds_alternative<DeleteJob>(effect) || std::holds_alternative<PutCordon>(effect) ||
         std::holds_alternative<PutNode>(effect) || std::holds_alternative<PutQueue>(effect) ||
         std::holds_alternative<InsertAudit>(effect);
}

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_EVENTS_H_
