// JobRecord: the durable state of a job, and the values that it consists of. The controller changes the record, the store keeps
// it, and the services show it.
#ifndef LYNX_SERVER_VALUES_JOB_H_
#define LYNX_SERVER_VALUES_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/enum_names.h"
#include "common/ids.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"

namespace lynx::server {

enum class JobState : uint8_t { kQueued, kPlanning, kStarting, kRunning, kSucceeded, kFailed, kCancelled };
inline constexpr int kJobStateCount = 7;
}  // namespace lynx::server

template <>
inline constexpr auto lynx::kEnumNames<lynx::server::JobState> = lynx::EnumTable("queued", "planning", "starting", "running",
                                                                                 "succeeded", "failed", "cancelled");

namespace lynx::server {
static_assert(kEnumNames<JobState>.size() == kJobStateCount);
constexpr bool IsFinal(JobState state) { return state >= JobState::kSucceeded; }

// A change of state, or something else worth knowing. The newest Store::kEventsPerJob events are kept as long as the job.
struct JobEvent {
  int64_t sequence = 0;  // numbers the events of a job: 1, 2, ...
  Nanos time;            // wall clock time
  JobState state = JobState::kQueued;
  std::string kind;
  std::string reason;
  bool operator==(const JobEvent&) const = default;
};

struct DeviceRef {
  NodeId node;
  int32_t device = 0;
  auto operator<=>(const DeviceRef&) const = default;
};

// One rank of the current generation.
struct RankRecord {
  DeviceRef where;
  std::string device_uuid;  // UUID of a GPU, as its agent reported it when the generation began
  // Address for its peers. The port is 0 until every rank of the generation is known to listen.
  std::string host;
  int32_t port = 0;
  int64_t acknowledged = 0;  // this record includes the rank's reports up to this sequence number
  bool finished = false;     // the rank reported that all steps are done
  bool operator==(const RankRecord&) const = default;
};

struct Progress {
  int64_t steps_done = 0;
  double loss = 0;
  double first_loss = 0;
  double gradient_norm = 0;
  double lr = 0;
  double tokens_per_second = 0;
  Nanos step;                   // step time: the median over the newest steps
  Nanos first_step_time;        // wall clock; 0: no step yet
  double validation_loss = 0;   // validation loss of the newest evaluation
  int64_t validation_step = 0;  // steps done at that evaluation; 0: no evaluation yet
  // The load of experts in the newest step; 0 if the model has no experts.
  double expert_skew = 0;       // ExpertLoad::skew
  double expert_dropped = 0;    // the share of the rows routed that was dropped
  double expert_in_rounds = 0;  // the share that went through rounds (MoeSpec::dropless)
  int64_t expert_rounds = 0;    // ExpertLoad::rounds
  bool operator==(const Progress&) const = default;
};

// Mean times of the slowest rank of one stage, over the steps of the current generation except the first two.
struct StageMeasurement {
  int64_t steps = 0;
  Nanos step, forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;
  Nanos core_wait;   // time in which other threads had the rank's core; the times above include it
  Bytes arena_peak;  // largest arena peak of all ranks of the stage
  Bytes states;
  bool operator==(const StageMeasurement&) const = default;
};

// The newest traced step, by pipeline rank. planner/report/step_trace.h describes the format.
struct StepTrace {
  Generation generation;
  int64_t step = 0;
  std::string plan_digest;
  std::vector<std::vector<int64_t>> stages;
  bool operator==(const StepTrace&) const = default;
};

// Why the ranks of the current generation are being stopped. kNone: they are not being stopped. kRestart: a rank or a node has
// failed. kCancel: the job is cancelled without a checkpoint. With kReplan and all later values the ranks give way: they finish
// a step, write its checkpoint and end. kReplan: for another plan. kPreempt: for another job, or because the job is held.
// kMove: their node is drained. kTimeLimit: the job's time is over. kLeave: the job is cancelled with a checkpoint. The store
// keeps the number of the value, so new values must be appended.
enum class StopKind : uint8_t { kNone, kRestart, kCancel, kReplan, kPreempt, kMove, kTimeLimit, kLeave };
constexpr bool GivesWay(StopKind kind) { return kind >= StopKind::kReplan; }

// Why a job waits. proto/lynx/v1/jobs.proto lists the values of `kind`.
struct PendingReason {
  std::string kind;
  std::string text;
  bool operator==(const PendingReason&) const = default;
};

// The memory limit of a device model for a job that has run out of memory on devices of this model `times` times.
struct MemoryLimit {
  std::string device_model;
  Bytes limit;
  int32_t times = 0;
  bool operator==(const MemoryLimit&) const = default;
};

struct JobRecord {
  JobId id;
  int64_t submission = 0;  // 1, 2, ... over all jobs; it orders the queue
  std::string owner;       // name of the user who submitted the job; kLocalUser: on an open server; empty: not known
  std::string idempotency_key;
  std::shared_ptr<const JobSpec> spec;
  std::string spec_digest;

  JobState state = JobState::kQueued;
  std::string reason;
  Nanos submitted, started, ended;  // wall clock; 0: not yet
  int64_t events = 0;               // sequence number of the newest event

  Generation generation;
  int32_t restarts = 0;
  int32_t restart_charge = 0;     // used part of spec.max_restarts; a restart costs 1, or 2 if no new step came before it
  int64_t best_steps = 0;         // the largest number of steps that were ever done
  int64_t base_steps = 0;         // best_steps at the start of this generation
  int64_t resume_step = -1;       // step at which this generation began; -1: from initial weights
  std::vector<RankRecord> ranks;  // all ranks by their number; empty while no generation is placed

  StopKind stop = StopKind::kNone;
  std::string stop_reason;
  bool cancel_requested = false;

  std::string checkpoint_path;  // path of the newest published checkpoint; empty: there is no checkpoint yet
  int64_t checkpoint_step = -1;
  Progress progress;
  std::vector<StageMeasurement> measured;  // measurements of each stage
  std::string plan_digest;                 // empty until the job has a plan
  // Kind of device that the ranks run on. kAny until the job is first planned; fixed after that, because a plan is for one
  // kind.
  DeviceKind device_kind = DeviceKind::kAny;

  bool held = false;
  std::vector<JobId> waits_for;  // jobs that must succeed before this one starts
  Nanos trained;                 // training time of all generations; for the current one, up to the last write of this record
  int32_t preemptions = 0;
  std::vector<NodeId> excluded;  // nodes that this job does not use, because of a failure there
  bool check_due = false;        // a node may be to blame for the last failure: the ranks run the node check before they train

  std::vector<MemoryLimit> memory_limits;  // one entry for each device model

  // Results of the last look at the queue, for a QUEUED job. They are not stored.
  std::vector<PendingReason> pending;
  Nanos expected_start;  // wall clock; 0: unknown
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_JOB_H_
