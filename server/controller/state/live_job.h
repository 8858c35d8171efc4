// LiveJob: what the controller knows of a job in addition to its durable record (values/job.h), and functions of one job alone.
// Pure; not thread-safe: the controller owns all jobs.
#ifndef LYNX_SERVER_CONTROLLER_STATE_LIVE_JOB_H_
#define LYNX_SERVER_CONTROLLER_STATE_LIVE_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "server/health/link_watch.h"
#include "server/health/skew_watch.h"
#include "server/health/slowness.h"
#include "server/health/speed_watch.h"
#include "server/health/trace_assembly.h"
#include "server/scheduling/placement.h"
#include "server/scheduling/progress.h"
#include "server/values/events.h"
#include "server/values/job.h"
#include "server/values/node_state.h"

namespace lynx::server {

// What is known about a rank of the current generation in addition to its record.
struct LiveRank {
  std::optional<RankPhase> phase;  // unset: no report has come since the generation or this server began
  bool started = false;            // the rank reported that it is ready to train
  bool fault_reported = false;     // the rank reported its failure itself
  bool failed = false;
  bool peer_lost = false;  // failed, but only because a peer was gone
  FaultCause cause = FaultCause::kUnknown;
  std::vector<int32_t> peers;  // after a failed link: the ranks at the other ends
  bool during_stop = false;    // failed after the stop had begun
  bool gave_way = false;       // ended on request, with a checkpoint
  bool forgotten = false;      // the rank's process was lost with its machine or daemon
  int32_t exit_code = 0;
  std::string reason;
  int64_t order = 0;             // position of this failure among the failures of the generation, from 1
  Nanos exited_at, finished_at;  // monotonic: when its exit was observed, when it reported that all steps are done
  int64_t received = 0;          // sequence number of the newest report that was processed
};

// State of planning during training, and of other changes to a job's devices.
struct Replanning {
  std::string trigger;                             // why a new plan is made while the job trains; empty: none is made
  std::shared_ptr<const Plan> plan;                // the plan for which the ranks give way
  std::shared_ptr<const ClusterTopology> cluster;  // the cluster that the plan was made for
  std::vector<DeviceRef> placement;                // the devices of that plan, by rank
  std::vector<DeviceRef> considered;               // devices of the present plan, or of the last attempt that did not pay
  Nanos not_before;                                // monotonic: until then the job is not planned again while it trains
  std::vector<Nanos> changes;                      // monotonic times of the changes of the plan within the last hour
  int64_t steps_done = 0;  // steps of the job that are done, known from this generation's newest step; 0: no step yet
  Bytes checkpoint;        // size of the newest checkpoint; 0: there is no checkpoint yet
  // began: when this generation began. start_took: time of the last start until all ranks ran.
  Nanos began, start_took{10'000'000'000};
};

// What the server knows about the job's current generation (its latest start or restart) and that generation's ranks.
struct GenerationState {
  std::shared_ptr<const std::vector<RankAddress>> peers;  // set when the record's ranks have ports
  std::vector<LiveRank> ranks;
  std::map<NodeId, std::vector<int32_t>> ranks_on;  // indices into the record's ranks, by node
  StepStatistics statistics;
  TraceAssembly traces;
  int64_t first_step = -1;   // first step of this generation, as the ranks reported; -1: not yet known
  bool from_copies = false;  // the ranks resumed from copies in memory, not from a checkpoint
  int64_t failures = 0;      // number of failed ranks
  // Timers, monotonic; 0: off.
  Nanos listen_deadline, stop_deadline, yield_deadline;
  Nanos stopping_since;  // since when the ranks must end at once; 0: they need not end at once
  Nanos restart_at;      // when the next generation may begin, after a pause; set when all ranks are gone
};

// Speeds of the job's nodes and links, and the load of its experts, compared with what its plan assumes.
struct DriftState {
  SpeedWatch speed;
  LinkWatch links;
  SkewWatch skew;
  double skew_found = 0;  // the skew for which the job was planned again after the present plan was made; 0: none
  // The layout in which a load was measured that was more uneven than planned for. Only this layout can show that the load has
  // become more even: another one divides the experts over other ranks.
  std::optional<ParallelLayout> uneven_in;
  std::map<NodeId, Slowness> slowness_watched;  // slowness of the job's nodes when the present watch of speeds began
  // Slowness::compute of the job's nodes. slowness_asked: the values when the newest plan was requested. slowness_planned: the
  // values that the present plan assumes.
  std::map<NodeId, double> slowness_asked, slowness_planned;
  Nanos not_before;  // monotonic: the speeds of the job's nodes are not compared before this time
};

// State of a job while a plan is being made for it.
struct PlanningState {
  // Devices that the job is planned for: in the state PLANNING, or in RUNNING with `replanning`. In RUNNING they are the job's
  // own devices and free ones.
  Reservation reservation;
  std::vector<LayerShape> wanted;
  int32_t more_rounds = 0;   // number of times that a plan's own shape was measured after the others
  size_t asked_before = 0;   // number of the wanted shapes that an earlier round asked for
  size_t awaited = 0;        // index of the reserved device that the last search found to be still unmeasured
  bool asked = false;        // true once the plan has been requested
  int64_t attempt = 0;       // number of the newest planning attempt
  Nanos measure_deadline;    // monotonic; 0: the job's nodes do not measure now
  Nanos measure_end;         // monotonic: the time limit of all rounds together
  Nanos measured_since;      // monotonic: when the job's nodes were asked to measure
  bool speculative = false;  // the job is planned to find out whether it would end before the first job in line begins
  int32_t min_devices = 0;   // the next plan needs at least this many devices, because there was no plan for fewer
  DeviceKind tried_kind = DeviceKind::kAny;  // kind of the devices that the newest planning attempt used; kAny: none
};

// What the last look at the queue has found about a QUEUED job.
struct QueueState {
  bool structural = false;  // the job could not begin even on all devices; it holds up others only until line_until
  bool over_quota = false;  // the quota of the job's queue is used up, so the job holds up no other job
  // Monotonic: until then the job keeps its place in the line although there are too few devices for it; 0: it keeps no place.
  Nanos line_until;
};

// State of a job that has run out of memory at least once. The memory limits themselves are in its record.
struct MemoryState {
  bool is_short = false;               // the job is planned again because its plan did not fit its devices
  std::map<std::string, Bytes> taken;  // for each device model, memory of its newest plan that did not fit; not stored
  std::string text;                    // the memory that the job's devices are now assumed to have
};

struct LiveJob {
  JobRecord record;
  std::shared_ptr<const Plan> plan;
  // The cluster that `plan` was made for, if that has several kinds of nodes; null: it has one kind, or is unknown.
  std::shared_ptr<const ClusterTopology> planned_kinds;
  std::vector<Bytes> program_text;  // program text of the plan, by stage
  GenerationState generation;
  PlanningState planning;
  Replanning replanning;
  QueueState queue;
  DriftState drift;
  MemoryState memory;
  bool makes_room = false;  // the job was asked to give way to another job
  Nanos spared_until;       // monotonic: the job's ranks did not give way and are not asked again before this time
  Nanos trained_before;     // training time of earlier generations
  int32_t fruitless = 0;    // number of consecutive generations without a step
  // Monotonic: when the job's record was last written, and when it must be written again; 0: nothing is due.
  Nanos persisted, persist_at;
};

// True if the job's specification gives a range of ranks.
bool IsElastic(const LiveJob& job);
// True if the ranks must end at once. False if they are only asked to give way.
bool IsStopping(const LiveJob& job);
// True if a plan is being made for the job, or its ranks give way for one.
bool IsPlanned(const LiveJob& job);
// True if some of the job's ranks have lost a peer; then the generation will end.
bool IsBreaking(const LiveJob& job);
// Number of devices that the job has or is planned for.
int32_t DevicesUsed(const LiveJob& job);
// Fills `ranks_on` from the record.
void IndexRanks(LiveJob& job);
// The devices of the job's ranks, by rank. If the job does not have the same number of devices on each node, every device
// counts as a node of its own.
Reservation HeldBy(const LiveJob& job);
// The skew of experts (MoeSpec::skew) that plans for the job assume: the one that was found last while it trained, or that of
// its present plan, or the one that the job states.
double SkewOf(const LiveJob& job);
// The job's specification with this skew, for the planner.
JobSpec SpecToPlan(const LiveJob& job);
// Why the job is being planned.
PlanTrigger TriggerOf(const LiveJob& job);
// Estimated time to write a checkpoint if each rank writes its share to a slow disk; 0 before the first checkpoint. The job
// must have a plan.
Nanos CheckpointTime(const LiveJob& job);
// Estimated time that the job loses without training if its plan is changed. The job must have a plan.
Nanos CostOfChange(const LiveJob& job);
// Training time of all generations up to `now` (monotonic).
Nanos TrainedBy(const LiveJob& job, Nanos now);
// The time until the job ends: the time of the remaining steps, as measured or predicted, or the rest of its time limit if that
// is less. The job must have a plan.
Nanos Remaining(const LiveJob& job, Nanos now);

// Names for messages, such as "small (j-0123)", "rank 3 on node n1".
std::string NameText(const LiveJob& job);
std::string RankText(const JobRecord& record, int32_t rank);
// Example: "tp1 pp2 dp1 on 2 devices (0123456789ab, predicted step 1.8 ms)".
std::string SummaryOf(const Plan& plan);
// LiveJob::planned_kinds for this cluster, which may be null.
std::shared_ptr<const ClusterTopology> PlannedKinds(std::shared_ptr<const ClusterTopology> cluster);
// Sizes of the programs as text, by stage.
std::vector<Bytes> ProgramTextOf(const Plan& plan);

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_LIVE_JOB_H_
