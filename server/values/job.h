// A job as the server knows it: what is durable of it, as plain values. The controller changes it, the store keeps it, the
// services show it. Thread-safe as values are.
#ifndef LYNX_SERVER_VALUES_JOB_H_
#define LYNX_SERVER_VALUES_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"

namespace lynx {

enum class JobState : uint8_t { kQueued, kPlanning, kStarting, kRunning, kSucceeded, kFailed, kCancelled };
inline constexpr int kJobStateCount = 7;
const char* JobStateName(JobState state);  // "queued", ...
constexpr bool IsFinal(JobState state) { return state >= JobState::kSucceeded; }

// A change of state or something worth knowing, kept as long as the job.
struct JobEvent {
  int64_t sequence = 0;  // 1, 2, ... per job
  Nanos time;            // wall clock
  JobState state = JobState::kQueued;
  std::string kind;
  std::string reason;
  bool operator==(const JobEvent&) const = default;
};

// A device of a node.
struct DeviceRef {
  NodeId node;
  int32_t device = 0;
  auto operator<=>(const DeviceRef&) const = default;
};

// One rank of the current generation.
struct RankRecord {
  DeviceRef where;
  std::string device_uuid;  // of a GPU, by what its agent said when the generation began
  // Where its peers find it; port 0 until every rank of the generation is known to listen.
  std::string host;
  int32_t port = 0;
  int64_t acknowledged = 0;  // reports up to this sequence have taken effect in this record
  bool finished = false;     // it reported that all steps are done
  bool operator==(const RankRecord&) const = default;
};

struct Progress {
  int64_t steps_done = 0;
  double loss = 0;
  double first_loss = 0;
  double gradient_norm = 0;
  double lr = 0;
  double tokens_per_second = 0;
  Nanos step;
  Nanos first_step_time;        // wall clock; 0 = no step yet
  double validation_loss = 0;   // of the newest evaluation
  int64_t validation_step = 0;  // steps done then; 0 = none yet
  bool operator==(const Progress&) const = default;
};

// Means over the steps of the current generation but the first two, of the slowest rank of a stage.
struct StageMeasurement {
  int64_t steps = 0;
  Nanos step, forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;
  Nanos core_wait;   // within the times above: others had the core
  Bytes arena_peak;  // largest of all ranks of the stage
  Bytes states;
  bool operator==(const StageMeasurement&) const = default;
};

// The newest traced step: planner/report/step_trace.h. By pipeline rank.
struct StepTrace {
  Generation generation;
  int64_t step = 0;
  std::string plan_digest;
  std::vector<std::vector<int64_t>> stages;
  bool operator==(const StepTrace&) const = default;
};

// Why the ranks of the current generation are being stopped; kNone: they are not. From kReplan on they give way, after a step
// and with a checkpoint of it: to another plan; to another job, or because the job is held; to work on their node; because the
// job's time is over; because it is cancelled, with a checkpoint. Kept as a number in stores: append only.
enum class StopKind : uint8_t { kNone, kRestart, kCancel, kReplan, kPreempt, kMove, kTimeLimit, kLeave };
constexpr bool GivesWay(StopKind kind) { return kind >= StopKind::kReplan; }

// Why a job waits. `kind` as in proto/lynx/v1/jobs.proto.
struct PendingReason {
  std::string kind;
  std::string text;
  bool operator==(const PendingReason&) const = default;
};

// What a device of a model counts as having for a job that has run out of memory there, so many times.
struct MemoryLimit {
  std::string device_model;
  Bytes limit;
  int32_t times = 0;
  bool operator==(const MemoryLimit&) const = default;
};

struct JobRecord {
  JobId id;
  int64_t submission = 0;  // 1, 2, ... over all jobs: the order of the queue
  std::string idempotency_key;
  std::shared_ptr<const JobSpec> spec;
  std::string spec_digest;

  JobState state = JobState::kQueued;
  std::string reason;
  Nanos submitted, started, ended;  // wall clock; 0 = not yet
  int64_t events = 0;               // sequence of the newest

  Generation generation;
  int32_t restarts = 0;
  int32_t restart_charge = 0;     // what the restarts cost of spec.max_restarts: 2 for one that brought no new step
  int64_t best_steps = 0;         // most steps ever done
  int64_t base_steps = 0;         // best_steps when the generation began
  int64_t resume_step = -1;       // of the generation; -1: from initial weights
  std::vector<RankRecord> ranks;  // by rank; empty while no generation is placed

  StopKind stop = StopKind::kNone;
  std::string stop_reason;
  bool cancel_requested = false;

  std::string checkpoint_path;  // newest published; empty = none
  int64_t checkpoint_step = -1;
  Progress progress;
  std::vector<StageMeasurement> measured;  // by stage
  std::string plan_digest;                 // empty before there is a plan
  // What its ranks run on; kAny before it is first planned. A plan is for one kind, so it never changes after that.
  DeviceKind device_kind = DeviceKind::kAny;

  bool held = false;
  std::vector<JobId> waits_for;  // jobs that must succeed before
  Nanos trained;                 // by all generations; of the present one, until the record was last written
  int32_t preemptions = 0;
  std::vector<NodeId> excluded;  // that this job does not use, for a failure there
  bool check_due = false;        // a node may be to blame for the last failure: its ranks check before they train

  std::vector<MemoryLimit> memory_limits;  // one for a model

  // Of a QUEUED job, not kept: as it was last looked at.
  std::vector<PendingReason> pending;
  Nanos expected_start;  // wall clock; 0 = not known
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_JOB_H_
