// Events are what happens to the controller; effects are what the controller wants done. Both are plain values. An event
// carries the time, and the caller carries out the effects. So the controller itself needs no clock and no I/O.
//
// Order of execution: first all durable effects (IsDurable) are committed in one transaction. Then the other effects are
// carried out in order. So a reply, an acknowledgement or an order to a node is never sent before the decision that it depends
// on is stored. RenewLease and StepRecorded depend on nothing that is stored, so they do not wait for the commit.
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

namespace lynx::server {

// ---- Events ----

struct JobSubmitted {
  int64_t request = 0;  // number of the request, for Reply
  JobId id;             // id that the job gets if it is new; unique
  std::string idempotency_key;
  JobSpec spec;  // normalized and valid
  std::string spec_digest;
  // JobRecord::owner. An idempotency key that another owner has used is refused; on an open server, whose callers are all
  // kLocalUser, each key is everybody's.
  std::string owner;
};
// The store could not write the job, so the job does not exist. Sent only for a job whose InsertJob was not committed.
struct SubmissionLost {
  JobId job;
};
struct CancelRequested {
  int64_t request = 0;
  JobId job;
  std::string reason;
  bool checkpoint = false;  // ranks that train write a checkpoint first
  Nanos grace;              // after this time the ranks are ended without a checkpoint; 0: the usual time limit for giving way
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
// Sets or removes the node's cordon. Without `cordon` the node may take new ranks again.
struct CordonRequested {
  int64_t request = 0;
  NodeId node;
  std::optional<Cordon> cordon;  // the controller fills in `since`
};
struct QueueRequested {
  int64_t request = 0;
  QueueConfig queue;
};
// `stream` is the number of the connection; numbers are never used again. `host` is the address of the node.
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
  int64_t attempt = 0;  // attempt of the PlanJob that this answers
  std::variant<std::shared_ptr<const Plan>, Infeasible, absl::Status> result;
  std::shared_ptr<const ClusterTopology> cluster;  // the cluster that the plan was made for
  Nanos beside;  // predicted step time of the plan PlanJob::beside; 0: there is no such plan, or no prediction
  // The order in which the ranks fill the nodes: for each node of `cluster`, its number in the PlanJob's cluster. Empty: both
  // clusters have the same order.
  std::vector<int32_t> node_order = {};
};
struct Tick {};

using EventBody = std::variant<JobSubmitted, SubmissionLost, CancelRequested, HoldRequested, ReleaseRequested, CordonRequested,
                               QueueRequested, AgentReported, WorkerReported, AgentGone, WorkerGone, PlanReady, Tick>;
struct Event {
  Nanos now;   // monotonic, for timers
  Nanos wall;  // since the Unix epoch, for display
  EventBody body;
};

// ---- Effects ----

struct InsertJob {
  JobRecord job;
};
// Writes the whole record except the spec and the plan.
struct UpdateJob {
  JobRecord job;
};
struct InsertPlan {
  JobId job;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const ClusterTopology> cluster;  // the cluster that the plan was made for; null: unknown
};
// Replaces the job's previous trace.
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
  Nanos time;  // wall clock time
};

// Deletes everything that is stored about a job, which has ended.
struct DeleteJob {
  JobId job;
};

// Stores or removes the node's cordon. Without `cordon` the node is no longer cordoned.
struct PutCordon {
  NodeId node;
  std::optional<Cordon> cordon;
};
// Stores a node that can be a witness and has attached for the first time. With `forgotten`: deletes the node from the store.
struct PutNode {
  NodeId node;
  bool forgotten = false;
};
struct PutQueue {
  QueueConfig queue;
};

// Audit record of a requested change or of a refused call. The record of a change is written in the same transaction as the
// change.
struct InsertAudit {
  AuditRecord record;
  JobId job;  // the job that was changed; empty: the change is not about a job
};

// Why a job is planned. kFirst: it has no plan yet. kSpeculation: to find out whether it would end before the first job in line
// begins. kLoss: it lost devices. kMemory: it ran out of memory. kGrowth: it trains and could use more devices. kDrift: it
// trains, and its nodes' speeds or the load of its experts have changed.
enum class PlanTrigger : uint8_t { kFirst, kSpeculation, kLoss, kMemory, kGrowth, kDrift };
inline constexpr int kPlanTriggerCount = 6;
struct PlanJob {
  JobId job;
  int64_t attempt = 0;
  PlanRequest request;
  PlanTrigger trigger = PlanTrigger::kFirst;
  // True if the nodes of the request's cluster may be put into another order (planner/search/arrangement.h). False if several
  // of them are devices of one node, which should stay neighbours.
  bool may_arrange = false;
  // The plan that the job trains with now. Its step time is predicted too, so that it can be compared with the new plan.
  // `beside_on` describes the devices that it runs on, by rank. Null: the job is not training.
  std::shared_ptr<const Plan> beside;
  ClusterTopology beside_on;
};
struct SendAgent {
  int64_t stream = 0;
  AgentDesired desired;
};
struct SendWorker {
  int64_t stream = 0;
  WorkerDesired desired;
};
// This effect does not wait for the commit, because it depends on nothing that is stored.
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
  std::vector<JobEvent> events;  // new events; empty: only the progress has changed
};
struct Reply {
  int64_t request = 0;
  absl::Status status;
  JobId job;
  bool existed = false;  // the idempotency key named a job that the server already had
};
// This effect is only for metrics and curves. It does not wait for the commit.
struct StepRecorded {
  JobId job;
  int32_t rank = 0;
  int32_t stage = 0;
  bool new_step = false;  // first report of this step, which the job has never done before
  StepReport step;
};

// This effect is only for metrics and curves.
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

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_EVENTS_H_
