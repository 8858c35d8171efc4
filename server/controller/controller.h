// Controller: makes all decisions of the server. It is a pure state machine: Step(event) changes its state and returns the
// effects that it wants. The event carries the time; there is no I/O, clock, thread, randomness or protobuf. Not thread-safe:
// one thread owns it.
//
// States of a job:
//
//             submit
//               |
//               v       devices free, its turn        plan, placement
//      +----> QUEUED ------------------------> PLANNING ------> STARTING ------> RUNNING ------> SUCCEEDED
//      |        |  \__ has a plan, devices free __________________^  |  all ready   |   all ranks done
//      |        |                                  |                 | or a step    |
//      |        |           infeasible, no layout  |                 |              |
//      |        |                                  v                 v              v
//      |        |                                FAILED <--- [stopping: ranks of this generation end]
//      |        |                                  budget spent,     |    |         ^ ^
//      |        |                                  own first fault   |    |         | rank lost, node lost, cancel
//      |        |                                                    |    |
//      |        |                          restart, new generation: STARTING (same devices, or others)
//      +--------|---------------------- no devices for a restart ----+
//               +--- cancel: CANCELLED (at once, or when the ranks have stopped)
//
// States of one generation, rank by rank: listening (desired without peers) -> all listen -> running (desired with all peers)
// -> finished and exited 0. Before the next generation begins, every rank's worker must report that the rank is gone, or its
// node must be lost.
//
// A job with a range of ranks is elastic. If it loses devices and no others replace them, it is planned again for the devices
// that are left. If more devices are free and nobody waits for them, it is planned for these too while it trains. If that plan
// pays, its ranks give way: they finish a step and write a checkpoint, and the next generation begins with the new plan
// (controller_replan.cc).
//
// Turns: waiting jobs get devices in the order of server/scheduling/queue_order.h. The first job that must wait holds up those
// behind it, except jobs that do not delay it: jobs that use other devices than it will get, or that end before it begins. It
// may make running jobs give way (controller_queue.cc). Jobs leave a node that is drained (controller_hold.cc).
#ifndef LYNX_SERVER_CONTROLLER_CONTROLLER_H_
#define LYNX_SERVER_CONTROLLER_CONTROLLER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/event_kind.h"
#include "server/health/attribution.h"
#include "server/health/check_verdict.h"
#include "server/health/link_watch.h"
#include "server/health/slowness.h"
#include "server/health/speed_watch.h"
#include "server/health/trace_assembly.h"
#include "server/scheduling/availability.h"
#include "server/scheduling/node_groups.h"
#include "server/scheduling/placement.h"
#include "server/scheduling/progress.h"
#include "server/scheduling/queue_order.h"
#include "server/values/cluster_stats.h"
#include "server/values/events.h"
#include "server/values/job.h"
#include "server/values/node_state.h"
#include "server/values/rank_logs.h"

namespace lynx {

// Limit for one desired state. It leaves room for all other fields within the largest message (proto/message_limit.h).
inline constexpr Bytes kMaxProgramText{48 << 20};

// Deliberate mistakes, for the test that shows that the simulation finds mistakes (tests/sim).
enum class Mistake : uint8_t {
  kNone,
  kReuseGeneration,      // a restart keeps the generation number of the generation before
  kStartBesideOldRanks,  // does not wait until the ranks of the generation before are gone
  kForgetWhatIsHeld,     // devices of other jobs count as free
  kForgetKeys,           // idempotency keys are not looked up
  kSucceedEarly,         // a job succeeds with its last step, before the checkpoint of that step
  kForgetTheQueue,       // a restarted server forgets queued jobs
  kNeverLoseNodes,       // waits forever for a node that is away
  kForgetOrphans,        // ignores ranks that still run on a node that was given up and came back
  kStartSilently,        // a generation begins without an event
  kForgetCordons,        // a restarted server starts ranks on cordoned nodes
  kForgetDependencies,   // a job does not wait for the jobs that it depends on
  kForgetHolds,          // a job starts although it is held
  kForgetMemory,         // a job that has run out of memory starts again with the same plan
  kForgetQuorum,         // a server that has lost contact to most nodes gives their work to the others
};

struct ControllerOptions {
  // How often nodes report when nothing has changed.
  Nanos heartbeat{2'000'000'000};
  // A node is lost when its worker daemon has been absent for this long. After a start of the server no node is lost earlier
  // than this, either.
  Nanos node_timeout{60'000'000'000};
  Nanos measure_timeout{60'000'000'000};  // time for agents to measure the shapes that a plan wants
  Nanos listen_timeout{60'000'000'000};   // time until all ranks of a generation must listen
  // Ranks that end because a peer is gone often report before the rank that is at fault. This is how long to wait for that
  // rank's report.
  Nanos culprit_grace{2'000'000'000};
  // When a generation is over, the next one waits at most this long for ranks on a node without a worker daemon. These ranks
  // have lost their peers, and whatever they still commit is refused then.
  Nanos stop_timeout{10'000'000'000};
  // Nodes that are cut off end their ranks by themselves before their work is given away.
  bool leases = true;
  // Reports of a rank that has exited with 0 may still be on their way, and a rank that has reported its last step may still be
  // about to exit. Wait this long for them.
  Nanos exit_grace{10'000'000'000};
  // Pause before the next generation after one that trained no step. Without it, a node that cannot start ranks for a while
  // (such as when its disk is full) would use up a job's restarts within a moment. The pause doubles with each such generation
  // in a row.
  Nanos restart_pause{2'000'000'000};
  Nanos most_restart_pause{60'000'000'000};
  Nanos progress_interval{1'000'000'000};  // between two writes of a job's progress
  // A job trains for this long before it is planned again for more devices.
  Nanos replan_after{5'000'000'000};
  int32_t most_replans_per_hour = 12;  // limit for one job; plans that a loss makes necessary do not count
  // Time for ranks to give way. They always get at least the time of thirty steps and a checkpoint.
  Nanos yield_timeout{60'000'000'000};
  // If a job could start within this time anyway, no other job has to give way for it.
  Nanos soon{30'000'000'000};
  // A job that has lost devices while it trained keeps its place in the line for this long and holds up the jobs behind it,
  // even if there are too few devices for it now: they may be back soon.
  Nanos return_timeout{120'000'000'000};
  // A job that names no checkpoint directory writes to `checkpoint_root`/JOB/checkpoints. An absolute path.
  std::string checkpoint_root = "/var/lib/lynx/jobs";
  int64_t max_unfinished_jobs = 10'000;
  // Number of ended jobs to remember. When there are more, the job that ended first is dropped with its idempotency key, plan
  // and events; the files that it wrote stay on disk. At least 1.
  size_t kept_jobs = 10'000;
  size_t max_nodes = 10'000;
  // Limit for the text of programs in one message to a worker. Ranks whose programs do not fit start with a later message. A
  // plan with a program above the limit is refused.
  Bytes most_program_text = kMaxProgramText;
  // Returns the shapes whose op times a plan wants (planner/candidates/search.h WantedShapes). Required.
  std::function<std::vector<LayerShape>(const JobSpec&, const ClusterTopology&)> wanted_shapes;
  Mistake mistake = Mistake::kNone;  // for tests only
};

class Controller {
 public:
  explicit Controller(ControllerOptions options);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  struct StoredJob {
    JobRecord record;
    std::shared_ptr<const Plan> plan;  // null: there is no plan, or the job has ended
  };
  struct Settings {
    std::map<NodeId, Cordon> cordons;
    std::vector<QueueConfig> queues;
    std::vector<NodeId> nodes;  // nodes that attached before and may be witnesses
  };
  // Restores what people have set and which nodes have attached before. Call before Restore.
  void RestoreSettings(Settings settings);
  // Continues from the state that an earlier server stored. Call once, before the first Step.
  std::vector<Effect> Restore(std::vector<StoredJob> jobs, Nanos now, Nanos wall);

  std::vector<Effect> Step(const Event& event);

  // nullptr: unknown job.
  const JobRecord* Find(const JobId& id) const;
  // The plan of a job that has ended comes without programs. null: there is no plan, or the job ended under an earlier server;
  // then the store has the plan.
  std::shared_ptr<const Plan> PlanOf(const JobId& id) const;
  // `text` is an id, the name of a job (the newest one counts), or a unique prefix of an id. NotFound: no such job.
  // InvalidArgument: an ambiguous prefix.
  absl::StatusOr<JobId> Resolve(const std::string& text) const;
  // Newest first. Empty `states`: all states. With `before`: only jobs that were submitted before that job.
  std::vector<const JobRecord*> List(size_t limit, const std::vector<JobState>& states,
                                     const JobRecord* before = nullptr) const;
  std::vector<NodeView> Nodes() const;
  NodeView ViewOf(const NodeId& name) const;
  // Summaries of the nodes in Nodes(), by name.
  std::vector<NodeSummary> Summaries() const;
  struct QueueView {
    QueueConfig config;
    int32_t waiting = 0, running = 0, devices = 0;
  };
  std::vector<QueueView> Queues() const;
  const RankLogs& logs() const { return logs_; }
  ClusterStats TakeClusterStats() const;
  // Number of devices that an unfinished job has or is planned for.
  int32_t DevicesHeld(const JobId& id) const;

 private:
  // What is known about a rank of the current generation in addition to its record.
  struct LiveRank {
    std::optional<RankPhase> phase;  // unset: no report yet since the generation or this server began
    bool started = false;
    bool fault_reported = false;  // the rank reported its failure itself
    bool failed = false;
    bool peer_lost = false;  // failed, but only because a peer was gone
    FaultCause cause = FaultCause::kUnknown;
    std::vector<int32_t> peers;  // after a failed link: the ranks at the other ends
    bool during_stop = false;    // failed after the stop had begun
    bool gave_way = false;       // ended on request, with a checkpoint
    bool forgotten = false;      // its process was lost with its machine or daemon
    int32_t exit_code = 0;
    std::string reason;
    int64_t order = 0;  // position of its failure among all failures of the job
    Nanos exited_at, finished_at;
    int64_t received = 0;  // sequence of the newest report that was processed
  };
  // State of planning during training, and of other changes to a job's devices.
  struct Replanning {
    std::string trigger;                             // why a new plan is made; empty: none is being made
    std::shared_ptr<const Plan> plan;                // the plan for which the ranks give way
    std::shared_ptr<const ClusterTopology> cluster;  // the cluster that the plan was made for
    std::vector<DeviceRef> placement;
    std::vector<DeviceRef> considered;        // devices of the present plan, or of the last attempt that did not pay
    Nanos not_before;                         // monotonic
    std::vector<Nanos> changes;               // times of changes within the last hour
    int64_t steps_done = 0;                   // from the newest step of this generation; 0: no step yet
    Bytes checkpoint;                         // size of the newest checkpoint; 0: none yet
    Nanos began, start_took{10'000'000'000};  // when this generation began; how long a start took until the ranks ran
  };
  struct Job {
    JobRecord record;
    std::shared_ptr<const Plan> plan;
    std::vector<Bytes> program_text;                        // program text of the plan, by stage
    std::shared_ptr<const std::vector<RankAddress>> peers;  // set when the record's ranks have ports
    std::vector<LiveRank> ranks;
    std::map<NodeId, std::vector<int32_t>> ranks_on;  // indices into the record's ranks, by node
    StepStatistics statistics;
    SpeedWatch speed;
    LinkWatch links;
    std::map<NodeId, Slowness> slowness_watched;  // slowness of the job's nodes when the present watch of speeds began
    // Slowness::compute of the job's nodes: when a plan was requested, and for the present plan.
    std::map<NodeId, double> slowness_asked, slowness_planned;
    Nanos drift_not_before;  // monotonic: its nodes' speeds are not compared before this time
    TraceAssembly traces;
    int64_t first_step = -1;   // first step of this generation, as the ranks reported; -1: not yet known
    bool from_copies = false;  // the ranks resumed from copies in memory, not from a checkpoint
    // Devices that the job is planned for: in PLANNING, or in RUNNING with `replanning`. Then they are its own devices and free
    // ones.
    Reservation reservation;
    std::vector<LayerShape> wanted;
    size_t awaited = 0;  // index of a reserved device whose node had not measured all wanted shapes at the last look
    bool plan_asked = false;
    int64_t attempt = 0;
    Replanning replanning;
    bool short_of_memory = false;               // it is planned again because its plan did not fit its devices
    std::map<std::string, Bytes> memory_taken;  // by device model: memory of the newest plan that did not fit; not stored
    std::string memory_text;                    // the memory that its devices are assumed to have since then
    bool speculative = false;  // it is planned to find out whether it would end before the first job in line begins
    bool structural = false;   // it needs more than exists; it holds up no other job
    bool over_quota = false;   // its queue's quota is used up; it holds up no other job
    bool makes_room = false;   // it was asked to give way to another job
    // Monotonic: until then it keeps its place in the line although there are too few devices; 0: it does not.
    Nanos line_until;
    Nanos spared_until;                        // monotonic: its ranks did not give way and are not asked again before this time
    Nanos trained_before;                      // training time of earlier generations
    int32_t min_devices = 0;                   // the next plan needs at least this many devices: fewer were tried
    DeviceKind tried_kind = DeviceKind::kAny;  // kind of the devices that were tried
    // Timers, monotonic; 0: off.
    Nanos measure_deadline, listen_deadline, stop_deadline, yield_deadline, persist_at;
    Nanos measured_since;   // monotonic: when its nodes were asked to measure
    Nanos stopping_since;   // since when the ranks must end at once; 0: they need not
    Nanos restart_at;       // set when all ranks are gone: when the next generation may begin
    int32_t fruitless = 0;  // number of consecutive generations without a step
    Nanos persisted;
    int64_t failures = 0;
  };
  struct Attachment {
    int64_t stream = 0;  // 0: not attached
    std::string host, boot;
  };
  struct Node {
    NodeId name;
    Attachment agent_link, worker_link;
    AgentState agent;     // from the last report
    std::string address;  // of the worker, for the node's peers
    std::string worker_version;
    std::set<JobId> jobs;                      // jobs with ranks of a live generation on this node
    std::map<RankKey, RankObservation> ranks;  // from the last report
    std::set<JobId> copies;                    // jobs whose states the node keeps in memory; from the last report
    Slowness slowness;                         // as the jobs that train on the node show it
    bool heard = false;                        // a worker has reported since this server began
    bool lost = false;
    int32_t witness_port = 0;  // 0: its daemon cannot be asked
    bool known = false;        // the node is in the store
    bool has_lease = false;    // its daemon knows leases
    // Witness lists sent to this node, by report number, oldest first; lists it has certainly replaced are dropped. nullopt:
    // sent by an earlier server.
    struct Told {
      int64_t report = 0;
      std::optional<std::vector<NodeId>> witnesses;
    };
    std::vector<Told> told{{}};
    // Monotonic. renewed_at: last renewal of its lease. worker_gone_at: when its worker went away. absent_since: since when the
    // worker has been away while at least half of the node's witnesses were in contact.
    Nanos renewed_at, worker_gone_at, absent_since;
    Nanos seen;  // wall clock
    Nanos seen_monotonic;

    bool agent_attached() const { return agent_link.stream != 0; }
    bool worker_attached() const { return worker_link.stream != 0; }
  };

  bool Makes(Mistake mistake) const { return options_.mistake == mistake; }

  static NodePresence PresenceOf(const Node& node);

  // controller.cc: common work of every Step
  std::vector<Effect> Finish();
  void AddEvent(Job& job, EventKind kind, const std::string& reason);
  void SetState(Job& job, JobState state, EventKind kind, const std::string& reason);
  void Touch(Job& job) { touched_.insert(job.record.id); }
  void TouchNodesOf(const Job& job);
  Job* FindJob(const JobId& id);
  void DropOldJobs();

  // controller_jobs.cc: submission, queue, planning, placement
  void OnSubmitted(const JobSubmitted& event);
  void OnSubmissionLost(const SubmissionLost& event);
  absl::Status ResolveDependencies(const JobSpec& spec, std::vector<JobId>& waits_for) const;
  void OnCancel(const CancelRequested& event);
  void OnPlanReady(const PlanReady& event);
  absl::Status CheckPrograms(const Plan& plan) const;
  DeviceKind KindOf(const Job& job) const;
  Demand DemandOf(const Job& job) const;
  void PlanRefused(Job& job, const std::string& reason);
  void BeginPlanning(Job& job, Reservation reservation);
  void EndPlanning(Job& job);
  ClusterTopology ClusterOf(const Reservation& reservation) const;
  static Reservation HeldBy(const Job& job);
  void AskForPlan(Job& job);
  static PlanTrigger TriggerOf(const Job& job);
  static bool IsPlanned(const Job& job);
  // `reason` is passed by value because it may be a part of the record that changes.
  void StartGeneration(Job& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason);
  // Without devices of nodes that are cordoned or that `for_job` does not use. Devices that `for_job` holds count as free.
  std::vector<NodeDevices> FreeDevices(DeviceKind kind, const Job* for_job) const;
  // Devices of cordoned nodes are included only with `cordoned`.
  std::vector<NodeDevices> AttachedDevices(DeviceKind kind, const std::set<DeviceRef>& used, bool cordoned = false) const;
  std::vector<NodeDevices> StillThere(const std::vector<DeviceRef>& held, DeviceKind kind, const Job& job) const;
  bool TakesRanks(const Node& node, bool cordoned) const;
  static NodeDevices DevicesOf(const Node& node, DeviceKind kind, const std::function<bool(const DeviceRef&)>& wanted);
  std::vector<NodeShare> SharesOf(const Job& job, size_t first, int32_t nodes) const;
  std::string UuidOf(const DeviceRef& where, DeviceKind kind, const std::vector<RankRecord>& before) const;
  void LeaveNodes(Job& job);
  static void IndexRanks(Job& job);
  void EndJob(Job& job, JobState state, EventKind kind, std::string reason);

  // controller_drift.cc: nodes and links whose speed has changed
  void CheckDrift(Job& job);

  // controller_queue.cc: whose turn it is, who may pass, who makes room
  struct Line;  // state of one pass over the queue
  void Enqueue(Job& job);
  void Dequeue(Job& job);
  void SetReady(const Job& job);
  void LeaveLine();
  void Schedule();
  bool Pass();
  std::vector<Turn> Turns();
  bool TryBegin(Job& job, const std::vector<NodeDevices>& free);
  const std::vector<NodeDevices>& FreeFor(const Job& job, Line& line);
  void TakeFromFree(const Job& job);
  bool MayUse(const Job& job, DeviceKind kind, const NodeId& name) const;
  bool TryHead(Job& job, Line& line);
  bool TryBackfill(Job& job, Line& line);
  std::optional<std::vector<DeviceRef>> Fits(const Job& job, const std::vector<NodeDevices>& free) const;
  bool MakeSpeculatorsLeave(const Job& job, Line& line);
  bool SomeoneIsBefore(const Job& job) const;
  bool SomeoneWaits() const;
  std::optional<Expectation> Expect(const Job& job, Line& line);
  Nanos Remaining(const Job& job) const;
  void ForgetFree();
  static int32_t DevicesUsed(const Job& job);
  std::map<std::string, int32_t> UsedByQueue() const;
  std::string SelectVictims(const Job& head, Standing standing, Line& line);
  std::string WhoGivesWay(const std::vector<DeviceRef>& devices) const;
  std::vector<PendingReason> WhyWaits(const Job& job, Standing standing, Line& line);
  std::vector<PendingReason> WhyNotReady(const Job& job) const;
  // Number of devices of the attached nodes, and of these the number on cordoned nodes.
  std::pair<int32_t, int32_t> CountAttached(DeviceKind kind) const;
  void SetPending(Job& job, std::vector<PendingReason> pending);
  std::string NameText(const Job& job) const;
  void SettleDependencies();

  // controller_hold.cc: hold, release, cordon, drain, queues, time limits
  void OnHold(const HoldRequested& event);
  void OnRelease(const ReleaseRequested& event);
  void OnCordon(const CordonRequested& event);
  void OnQueue(const QueueRequested& event);
  void StopMoving(const NodeId& name);
  void AskToGiveWay(Job& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason,
                    Nanos deadline = Nanos(0));
  void CheckRequests(Job& job);
  void Requeue(Job& job, EventKind kind, std::string reason);
  void LeaveDevices(Job& job);
  void ForceOut(Job& job);
  Nanos Trained(const Job& job) const;
  static bool IsSlow(const Slowness& slowness);
  std::vector<std::string> NoteComputeDrift(Job& job);
  std::vector<std::string> NoteLinkDrift(Job& job);
  Nanos PredictedOn(const Job& job, const NodeId& from, const NodeId& to, int64_t bytes) const;
  std::map<NodeId, Slowness> SlownessOf(const Job& job) const;
  double SlowedSincePlanned(const Job& job) const;

  // controller_replan.cc: new plans for jobs that have a plan
  static bool IsElastic(const Job& job);
  static bool IsStopping(const Job& job);
  static bool IsBreaking(const Job& job);
  std::vector<NodeDevices> DevicesAgain(const Job& job, const std::vector<DeviceRef>& had) const;
  bool ReplanForLess(Job& job, const std::vector<NodeDevices>& free, const std::string& reason);
  void LookForMore();
  bool MayBeReplanned(const Job& job) const;
  bool MayGrow(const Job& job) const;
  void ConsiderPlan(Job& job, const PlanReady& event);
  static Nanos CheckpointTime(const Job& job);
  Nanos YieldTime(const Job& job) const;
  static Nanos CostOfChange(const Job& job);
  std::string WhyNot(const Job& job, const Plan& plan, Nanos beside) const;
  void KeepPlan(Job& job, const std::string& reason);
  void GiveWay(Job& job, const PlanReady& event, std::vector<DeviceRef> placement);
  void ChangePlan(Job& job);
  void OnGaveWay(Job& job, int32_t rank);
  void OnYieldDeadline(Job& job);
  bool IsPastDeadline(const Job& job) const;
  void TakeYieldBack(Job& job);
  void EndReplanning(Job& job);
  void SetPlan(Job& job, std::shared_ptr<const Plan> plan, const std::shared_ptr<const ClusterTopology>& cluster,
               std::vector<DeviceRef> considered);

  // controller_measure.cc: what agents should measure before a plan is made
  void Prepare(Job& job, Reservation reservation);
  void AdvancePlanningOn(const NodeId& node);
  void AdvancePlanning(Job& job);
  bool AwaitsMeasurements(const Job& job, const DeviceRef& device) const;
  void TellMeasured(Job& job);
  static bool Measures(const Node& node, const Job& job);
  AgentDesired ShapesFor(const Node& node) const;

  // controller_memory.cc: jobs that run out of memory
  std::string ModelOf(const DeviceRef& where, DeviceKind kind) const;
  Bytes MemoryLimitFor(const Job& job, size_t first, size_t end) const;
  bool IsTooLarge(const Job& job, const std::vector<DeviceRef>& placement) const;
  void NoteMemoryEnds(Job& job, int32_t rank);
  bool PlanForLessMemory(Job& job, const std::vector<NodeDevices>& free, const std::string& reason);
  std::string LessMemoryText(const Job& job, const Plan& plan) const;
  bool PlanForMoreMemory(Job& job, const std::string& refusal);
  void FailForMemory(Job& job, const std::string& reason);

  // controller_faults.cc: what caused a failure
  RankFailureFacts FactsOf(const Job& job, int32_t rank) const;
  Attributed Blame(Job& job, int32_t rank);
  bool WouldRefuseAgain(const Job& job, const LiveRank& culprit) const;
  bool MayAllow(const Job& job, int32_t rank) const;
  void Remember(RankFailureFacts facts);
  const FailureRule* RuleFor(const Job& job, int32_t rank) const;
  bool ExcludeNode(Job& job, const NodeId& node, const std::string& why);

  // controller_check.cc: the node check before a job trains on suspect nodes again
  static void NoteFailure(Job& job, Attribution attribution);
  void FoldCheck(Job& job, const NodeCheckReport& checked);
  std::vector<BadNode> FoundBad(const Job& job) const;
  Attributed BlameFound(Job& job, int32_t rank, const std::vector<BadNode>& bad);
  bool ExcludeFound(Job& job, const std::vector<BadNode>& bad);

  // controller_ranks.cc: generations: starting, running, failing, stopping
  void OnRankMessage(const RankMessage& message);
  void FoldMessage(Job& job, int32_t rank, const RankMessage& message);
  void FoldStarted(Job& job, int32_t rank, const RankReady& started);
  void FoldStep(Job& job, int32_t rank, const StepReport& step);
  void FoldEvaluation(Job& job, const EvaluationReport& evaluation);
  void FoldTrace(Job& job, int32_t rank, const TraceReport& trace);
  void FoldCheckpoint(Job& job, const CheckpointReport& checkpoint);
  void ObserveRank(Job& job, int32_t rank, const RankObservation& seen);
  void ObserveMissing(Job& job, const Node& node);
  void ObserveExit(Job& job, int32_t rank, const RankObservation& seen);
  void RankFailed(Job& job, int32_t rank, const RankFailure& fault, bool reported);
  void CheckListening(Job& job);
  void CheckRunning(Job& job);
  void CheckSucceeded(Job& job);
  void BeginStop(Job& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason);
  void CheckStopped(Job& job);
  void EndGeneration(Job& job);
  void EndFailed(Job& job);
  bool MayGoOn(Job& job, int32_t rank, const LiveRank* culprit, const Attributed& attributed, const std::string& reason);
  void Restart(Job& job, const std::string& reason);
  // False: the last generation trained no step, and the next one must still wait.
  bool PauseIsOver(Job& job, bool fruitless);
  void StartAgain(Job& job, EventKind kind, std::string reason);
  bool NodesServe(const Job& job) const;
  bool RankGone(const Job& job, int32_t rank) const;
  bool RankOver(const Job& job, int32_t rank) const;
  const LiveRank* Culprit(const Job& job, int32_t& rank) const;
  std::string FailureText(const Job& job, int32_t rank) const;
  void JobTimers(Job& job);
  void RestoreGeneration(Job& job);

  // controller_leases.cc: nodes that are cut off
  Nanos CutOffAfter() const;
  Nanos IsolatedAfter() const;
  void TakeWitness(Node& node, const WorkerState& state);
  std::vector<NodeId> WitnessesOf(const NodeId& name) const;
  void Renew(Node& node, int64_t stream, const WorkerState& state);
  static void Tell(Node& node, int64_t report, std::optional<std::vector<NodeId>> witnesses);
  bool InContact(const Node& node) const;
  bool HasQuorum(const std::vector<NodeId>& witnesses) const;
  bool AlmostAllAreInContact() const;
  void WatchQuorum();
  bool AwayFor(const Node& node, Nanos timeout, Nanos since) const;

  // controller_nodes.cc: streams, nodes, and their desired states
  void OnAgentReported(const AgentReported& event);
  void OnWorkerReported(const WorkerReported& event);
  void OnAgentGone(const AgentGone& event);
  void OnWorkerGone(const WorkerGone& event);
  void OnTick();
  enum class Party : uint8_t { kAgent, kWorker };
  Node* Admit(Party party, int64_t stream, const NodeId& name, const std::string& host, const std::string& boot);
  Node& NodeOf(const NodeId& name);
  bool IsLive(const RankKey& key, const Node& node) const;
  bool HasOrphans(const Node& node) const;
  void AcknowledgeOrphans(const WorkerState& state, const Node& node);
  void LoseNode(Node& node);
  void ForgetNode(const NodeId& name);
  WorkerDesired DesiredOf(const Node& node) const;

  // controller_copies.cc: copies of states in the memory of nodes
  void NoteCopies(Node& node, const std::set<JobId>& copies);
  void ForgetCopies(Node& node);
  std::vector<JobId> EndedOf(const Node& node) const;
  void TouchHoldersOf(const Job& job);
  RankAssignment AssignmentOf(const Job& job, int32_t rank, const Node& node) const;
  void HoldBack(WorkerDesired& desired) const;
  static std::vector<Bytes> ProgramTextOf(const Plan& plan);

  const ControllerOptions options_;
  std::map<JobId, Job> jobs_;
  std::map<std::string, JobId> by_key_;
  std::map<int64_t, JobId> by_submission_;
  std::set<int64_t> queue_;  // submission numbers of QUEUED jobs
  // QUEUED jobs that wait only for their turn: for each queue, in its order.
  std::map<std::string, std::set<std::pair<int32_t, int64_t>>> ready_;
  // Free devices by kind, during one look at the queue; devices that single jobs exclude are included. In locality order as of
  // the time when they were first needed, minus what was given to jobs since.
  std::map<DeviceKind, std::vector<NodeDevices>> free_;
  std::optional<std::map<std::string, int32_t>> used_;  // used devices by queue, during one look at the queue
  JobId favoured_;                                      // the first job in line, to which others give way; empty: none
  Nanos next_schedule_;         // monotonic: the queue is not looked at before this time, whatever happens
  Nanos next_pass_;             // monotonic: the queue is looked at then even if nothing happens
  std::set<JobId> in_line_;     // QUEUED jobs that keep their place in the line for a while (Job::line_until)
  std::set<JobId> dependents_;  // QUEUED jobs that wait for other jobs to succeed
  std::map<NodeId, Cordon> cordons_;
  std::map<std::string, QueueConfig> queues_;
  std::set<JobId> unfinished_;
  std::set<JobId> active_;     // unfinished jobs that are not QUEUED: they have devices or are planned for some
  std::set<JobId> measuring_;  // active jobs that wait for agents to measure
  // Jobs by the first node that they wait for; may still contain jobs that no longer wait.
  std::map<NodeId, std::set<JobId>> awaited_;
  std::set<std::pair<Nanos, int64_t>> ended_;  // wall clock time of the end, and submission number
  std::map<NodeId, Node> nodes_;
  std::map<int64_t, NodeId> streams_;          // admitted streams
  std::map<JobId, std::set<NodeId>> holders_;  // the nodes whose `copies` name the job
  std::set<NodeId> gpu_nodes_;                 // nodes that have reported GPUs
  // Nodes that can be witnesses, at scattered places; the witnesses of a node are those that follow it.
  std::map<uint64_t, NodeId> ring_;
  // By node: unfinished jobs that do not use it (JobRecord::excluded), and since when (wall clock).
  std::map<NodeId, std::map<JobId, Nanos>> unused_by_;
  std::deque<RankFailureFacts> faults_;  // newest last
  Nanos began_;                          // monotonic: start of this server
  RankLogs logs_;
  int64_t last_submission_ = 0;
  int64_t fenced_reports_ = 0;

  // State of the Step in progress.
  Nanos now_, wall_;
  std::vector<Effect> effects_;
  std::set<JobId> touched_;                               // jobs whose records must be written
  std::map<JobId, std::vector<JobEvent>> notices_;        // events to send to watchers
  std::set<NodeId> agent_dirty_, worker_dirty_;           // nodes to which a new desired state must be sent
  std::map<NodeId, std::vector<ReportAck>> orphan_acks_;  // acknowledgements for orphans: ranks of generations that are over
  bool schedule_ = false;
};

// Example: "tp1 pp2 dp1 on 2 devices (0123456789ab, predicted step 1.8 ms)".
std::string SummaryOf(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_CONTROLLER_H_
