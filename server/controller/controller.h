// Controller: decides everything. A pure state machine: Step(event) changes its state and returns the effects that it
// wants; time arrives in the event; no I/O, clock, threads, randomness or protobuf. Not thread-safe: one owner thread.
//
// A job:
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
// A generation, rank by rank: listening (desired without peers) -> all listen -> running (desired with all peers) ->
// finished and exited 0. Every rank's worker must show that the rank is gone before a next generation begins, or its node
// be lost.
//
// A job with a range of ranks is elastic. Where its devices are lost and others do not make up for them, it is planned again
// for what is left; where more are free and nobody waits for them, it is planned for these too beside its training, and if that
// pays, its ranks give way after a step with a checkpoint, and the next generation begins with the new plan
// (controller_replan.cc).
//
// Turns: waiting jobs get devices in the order of server/scheduling/queue_order.h. The first that has to wait holds up those
// behind it, but for jobs that do not delay it: that use other devices than it will have, or end before. It may make running
// jobs give way (controller_queue.cc). A node that is drained makes its jobs move (controller_hold.cc).
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

// Of one desired state. Leaves room for everything else below the largest message (proto/message_limit.h).
inline constexpr Bytes kMaxProgramText{48 << 20};

// For the test that shows that tests find mistakes (tests/sim).
enum class Mistake : uint8_t {
  kNone,
  kReuseGeneration,      // a restart has the number of the generation before
  kStartBesideOldRanks,  // does not wait until ranks of the generation before are gone
  kForgetWhatIsHeld,     // devices of other jobs count as free
  kForgetKeys,           // an idempotency key is not looked up
  kSucceedEarly,         // a job has succeeded with its last step, before the checkpoint of it
  kForgetTheQueue,       // a restarted server leaves queued jobs out
  kNeverLoseNodes,       // a node that is away is waited for for ever
  kForgetStrays,         // what still runs on a node that was given up and is back does not count
  kStartSilently,        // a generation begins without an event
  kForgetCordons,        // a restarted server gives ranks to nodes that are cordoned
  kForgetDependencies,   // a job does not wait for those that it is to come after
  kForgetHolds,          // a job that is held begins all the same
  kForgetMemory,         // a job that has run out of memory begins with the same plan
  kForgetQuorum,         // a server that has lost most nodes gives their work to the others
};

struct ControllerOptions {
  // How often nodes report when nothing has changed.
  Nanos heartbeat{2'000'000'000};
  // Absence of a worker daemon after which its node counts as lost. After a start of the server, too: no node is lost
  // earlier.
  Nanos node_timeout{60'000'000'000};
  Nanos measure_timeout{60'000'000'000};  // for agents to measure the shapes that a plan wants
  Nanos listen_timeout{60'000'000'000};   // for all ranks of a generation to listen
  // Ranks that end because a peer is gone often report it before the rank that is at fault: how long to wait for that.
  Nanos culprit_grace{2'000'000'000};
  // A generation that is over does not wait longer for the ranks of a node without a worker daemon before the next one begins:
  // they have lost their peers, and what they might still commit is refused then.
  Nanos stop_timeout{10'000'000'000};
  // Nodes that are cut off end their ranks by themselves, before their work is given away.
  bool leases = true;
  // A rank that has exited with 0 may have reports on their way, and one that reports the end of its work be about to exit.
  Nanos exit_grace{10'000'000'000};
  // Before the next generation after one that trained no step: a node that cannot begin ranks for a while, such as for a full
  // disk, must not spend a job's restarts within a moment. Doubles with each in a row.
  Nanos restart_pause{2'000'000'000};
  Nanos most_restart_pause{60'000'000'000};
  Nanos progress_interval{1'000'000'000};  // between two writes of a job's progress
  // A job trains for so long before it is planned again for more devices.
  Nanos replan_after{5'000'000'000};
  int32_t most_replans_per_hour = 12;  // of a job, but for those that a loss makes necessary
  // For ranks to give way; at least thirty of their steps and a checkpoint.
  Nanos yield_timeout{60'000'000'000};
  // A job that could begin so soon makes nobody give way.
  Nanos soon{30'000'000'000};
  // A job that has lost devices while it trained holds up those behind it for so long, though without them there are too few
  // for it: they may be back soon.
  Nanos return_timeout{120'000'000'000};
  // Checkpoints of a job that names no directory go to `checkpoint_root`/JOB/checkpoints. Absolute.
  std::string checkpoint_root = "/var/lib/lynx/jobs";
  int64_t max_unfinished_jobs = 10'000;
  // Jobs that have ended and are still known. Beyond them the one that ended first is dropped, with its idempotency key,
  // its plan and its events; what it wrote stays on disk. At least 1.
  size_t kept_jobs = 10'000;
  size_t max_nodes = 10'000;
  // Text of programs in one message to a worker. Ranks whose programs do not fit start with a later message; a plan with a
  // program above it is refused.
  Bytes most_program_text = kMaxProgramText;
  // The shapes whose op times a plan wants (planner/candidates/search.h WantedShapes). Required.
  std::function<std::vector<LayerShape>(const JobSpec&, const ClusterTopology&)> wanted_shapes;
  Mistake mistake = Mistake::kNone;  // for tests alone
};

class Controller {
 public:
  explicit Controller(ControllerOptions options);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  struct StoredJob {
    JobRecord record;
    std::shared_ptr<const Plan> plan;  // null: none, or the job has ended
  };
  struct Settings {
    std::map<NodeId, Cordon> cordons;
    std::vector<QueueConfig> queues;
    std::vector<NodeId> nodes;  // that have been there and may be witnesses
  };
  // What people have set, and who has attached. Call before Restore.
  void RestoreSettings(Settings settings);
  // Takes up what an earlier server left. Call once, before the first Step.
  std::vector<Effect> Restore(std::vector<StoredJob> jobs, Nanos now, Nanos wall);

  std::vector<Effect> Step(const Event& event);

  // nullptr: unknown.
  const JobRecord* Find(const JobId& id) const;
  // Without programs when the job has ended. null: none, or the job ended under an earlier server, and the store has it.
  std::shared_ptr<const Plan> PlanOf(const JobId& id) const;
  // An id, the newest job of that name, or a unique prefix of an id. NotFound, or InvalidArgument for an ambiguous prefix.
  absl::StatusOr<JobId> Resolve(const std::string& text) const;
  // Newest first; `states` empty = all. With `before` only jobs that were submitted before that one.
  std::vector<const JobRecord*> List(size_t limit, const std::vector<JobState>& states,
                                     const JobRecord* before = nullptr) const;
  std::vector<NodeView> Nodes() const;
  NodeView ViewOf(const NodeId& name) const;
  // Of the nodes that Nodes() tells of, by name.
  std::vector<NodeSummary> Summaries() const;
  struct QueueView {
    QueueConfig config;
    int32_t waiting = 0, running = 0, devices = 0;
  };
  std::vector<QueueView> Queues() const;
  const RankLogs& logs() const { return logs_; }
  ClusterStats TakeCensus() const;
  // Of an unfinished job: that it has, or is planned for.
  int32_t DevicesHeld(const JobId& id) const;

 private:
  // What is known of a rank of the current generation beside its record.
  struct LiveRank {
    std::optional<RankPhase> phase;  // unset: not heard of since the generation or this server began
    bool started = false;
    bool fault_reported = false;  // by the rank itself
    bool failed = false;
    bool peer_lost = false;  // failed, but only because a peer was gone
    FaultCause cause = FaultCause::kUnknown;
    std::vector<int32_t> peers;  // of a link's failure: the ranks at the other ends
    bool during_stop = false;    // failed after the stop had begun
    bool gave_way = false;       // as it was asked to
    bool forgotten = false;      // its process went with its machine or daemon
    int32_t exit_code = 0;
    std::string reason;
    int64_t order = 0;  // of the failure among those of the job
    Nanos exited_at, finished_at;
    int64_t received = 0;  // newest report that was folded in
  };
  // Planning beside the training, and what else changes a job's devices.
  struct Replanning {
    std::string trigger;                             // why; empty: it is not under way
    std::shared_ptr<const Plan> plan;                // that the ranks give way to
    std::shared_ptr<const ClusterTopology> cluster;  // that it was made for
    std::vector<DeviceRef> placement;
    std::vector<DeviceRef> considered;        // that the plan was made for, or for which none was worth a change
    Nanos not_before;                         // monotonic
    std::vector<Nanos> changes;               // when, within the last hour
    int64_t steps_done = 0;                   // as this generation's newest step says; 0: it has done none
    Bytes checkpoint;                         // the newest one; 0: none yet
    Nanos began, start_took{10'000'000'000};  // when this generation began; how long one took until it ran
  };
  struct Job {
    JobRecord record;
    std::shared_ptr<const Plan> plan;
    std::vector<Bytes> program_text;                        // of the plan, by stage
    std::shared_ptr<const std::vector<RankAddress>> peers;  // set when the record's ranks have ports
    std::vector<LiveRank> ranks;
    std::map<NodeId, std::vector<int32_t>> ranks_on;  // each node's of the record's
    StepStatistics statistics;
    SpeedWatch speed;
    LinkWatch links;
    std::map<NodeId, Slowness> slowness_watched;  // of its nodes, when the speeds began to be watched
    // Its nodes' Slowness::compute when a plan was asked for, and of the plan that it has.
    std::map<NodeId, double> slowness_asked, slowness_planned;
    Nanos drift_not_before;  // monotonic: its nodes' speeds are not looked at before
    TraceAssembly traces;
    int64_t first_step = -1;   // that the ranks of this generation began with, as they reported; -1: not yet
    bool from_copies = false;  // in memory, not from a checkpoint
    // While it is planned: PLANNING, or RUNNING with `replanning`. Then the devices are its own and free ones.
    Reservation reservation;
    std::vector<LayerShape> wanted;
    size_t awaited =
        0;  // of the reserved devices: one of a node that has not measured all of these, when it was last looked at
    bool plan_asked = false;
    int64_t attempt = 0;
    Replanning replanning;
    bool short_of_memory = false;               // is planned again since its plan did not fit its devices
    std::map<std::string, Bytes> memory_taken;  // by model of device: by the newest plan that did not fit; gone with the server
    std::string memory_text;                    // what they count as having since then
    bool speculative = false;                   // is planned to see whether it would end before the first in line begins
    bool structural = false;                    // waits for more than there is: it holds up nobody
    bool over_quota = false;                    // its queue may not have more: it holds up nobody
    bool makes_room = false;                    // it was asked to give way to another job
    Nanos line_until;  // monotonic: until then it keeps its place in the line though there are too few devices; 0 = it does not
    Nanos spared_until;                        // monotonic: its ranks have not given way, and are not asked again before
    Nanos trained_before;                      // by the generations before this one
    int32_t min_devices = 0;                   // at least so many for the next plan: fewer have been tried
    DeviceKind tried_kind = DeviceKind::kAny;  // that they were of
    // timers, monotonic; 0 = off
    Nanos measure_deadline, listen_deadline, stop_deadline, yield_deadline, persist_at;
    Nanos measured_since;   // monotonic: when its nodes were asked to measure
    Nanos stopping_since;   // since when the ranks are to end at once
    Nanos restart_at;       // all ranks are gone: when the next generation may begin
    int32_t fruitless = 0;  // generations in a row that trained no step
    Nanos persisted;
    int64_t failures = 0;
  };
  struct Attachment {
    int64_t stream = 0;  // 0 = none
    std::string host, boot;
  };
  struct Node {
    NodeId name;
    Attachment agent_link, worker_link;
    AgentState agent;     // the last report
    std::string address;  // of the worker, for peers
    std::string worker_version;
    std::set<JobId> jobs;                      // that have ranks of a live generation here
    std::map<RankKey, RankObservation> ranks;  // of the last report
    std::set<JobId> copies;                    // of whose states it keeps copies in memory; of the last report
    Slowness slowness;                         // as jobs show that train there
    bool heard = false;                        // a worker has reported since this server began
    bool lost = false;
    int32_t witness_port = 0;  // 0: its daemon cannot be asked
    bool known = false;        // is in the store
    bool has_lease = false;    // its daemon knows of leases
    // Whom it may ask: what it was told with its report of a number and after, oldest first; what it has certainly not got any
    // more is left out. nullopt: this server does not know, another one told it.
    struct Told {
      int64_t report = 0;
      std::optional<std::vector<NodeId>> witnesses;
    };
    std::vector<Told> told{{}};
    // Monotonic: when its lease was last renewed; while there is no worker: since when that is, and since when, beside that, at
    // least half of its witnesses have been in contact.
    Nanos renewed_at, worker_gone_at, absent_since;
    Nanos seen;  // wall clock
    Nanos seen_monotonic;

    bool agent_attached() const { return agent_link.stream != 0; }
    bool worker_attached() const { return worker_link.stream != 0; }
  };

  bool Makes(Mistake mistake) const { return options_.mistake == mistake; }

  static NodePresence PresenceOf(const Node& node);

  // controller.cc: bookkeeping of one Step
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
  // Reasons by value: they may be a part of the record that changes.
  void StartGeneration(Job& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason);
  // Not of nodes that are cordoned, nor of those that `for_job` does not use. Its own devices count as free.
  std::vector<NodeDevices> FreeDevices(DeviceKind kind, const Job* for_job) const;
  // Of cordoned nodes only if told.
  std::vector<NodeDevices> AttachedDevices(DeviceKind kind, const std::set<DeviceRef>& used, bool cordoned = false) const;
  std::vector<NodeDevices> StillThere(const std::vector<DeviceRef>& held, DeviceKind kind, const Job& job) const;
  bool TakesRanks(const Node& node, bool cordoned) const;
  static NodeDevices DevicesOf(const Node& node, DeviceKind kind, const std::function<bool(const DeviceRef&)>& wanted);
  std::vector<NodeShare> SharesOf(const Job& job, size_t first, int32_t nodes) const;
  std::string UuidOf(const DeviceRef& where, DeviceKind kind, const std::vector<RankRecord>& before) const;
  void LeaveNodes(Job& job);
  static void IndexRanks(Job& job);
  void EndJob(Job& job, JobState state, EventKind kind, std::string reason);

  // controller_drift.cc: nodes and links that have become slower or faster
  void CheckDrift(Job& job);

  // controller_queue.cc: whose turn it is, who may pass, who makes room
  struct Line;  // of one pass over the queue
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
  // Devices of the attached nodes, and those of cordoned ones among them.
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
  void CheckWishes(Job& job);
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

  // controller_replan.cc: other plans for jobs that have one
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

  // controller_measure.cc: what agents are to measure before a plan
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

  // controller_faults.cc: whose fault a failure was
  RankFailureFacts FactsOf(const Job& job, int32_t rank) const;
  Attributed Blame(Job& job, int32_t rank);
  bool WouldRefuseAgain(const Job& job, const LiveRank& culprit) const;
  bool MayAllow(const Job& job, int32_t rank) const;
  void Remember(RankFailureFacts facts);
  const FailureRule* RuleFor(const Job& job, int32_t rank) const;
  bool ExcludeNode(Job& job, const NodeId& node, const std::string& why);

  // controller_check.cc: nodes that are checked before a job trains on them again
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
  // False: the generation that is over trained nothing, and the next one must wait a little.
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

  // controller_nodes.cc: streams, nodes, what they should do
  void OnAgentReported(const AgentReported& event);
  void OnWorkerReported(const WorkerReported& event);
  void OnAgentGone(const AgentGone& event);
  void OnWorkerGone(const WorkerGone& event);
  void OnTick();
  enum class Party : uint8_t { kAgent, kWorker };
  Node* Admit(Party party, int64_t stream, const NodeId& name, const std::string& host, const std::string& boot);
  Node& NodeOf(const NodeId& name);
  bool IsLive(const RankKey& key, const Node& node) const;
  bool HasStrays(const Node& node) const;
  void AcknowledgeStrays(const WorkerState& state, const Node& node);
  void LoseNode(Node& node);
  void ForgetNode(const NodeId& name);
  WorkerDesired WishOf(const Node& node) const;

  // controller_copies.cc: copies of states in the memory of nodes
  void NoteCopies(Node& node, const std::set<JobId>& copies);
  void ForgetCopies(Node& node);
  std::vector<JobId> EndedOf(const Node& node) const;
  void TouchHoldersOf(const Job& job);
  RankAssignment AssignmentOf(const Job& job, int32_t rank, const Node& node) const;
  void HoldBack(WorkerDesired& wish) const;
  static std::vector<Bytes> ProgramTextOf(const Plan& plan);

  const ControllerOptions options_;
  std::map<JobId, Job> jobs_;
  std::map<std::string, JobId> by_key_;
  std::map<int64_t, JobId> by_submission_;
  std::set<int64_t> queue_;  // submissions of QUEUED jobs
  // Of those, the ones that wait for nothing but their turn, by queue: in its order.
  std::map<std::string, std::set<std::pair<int32_t, int64_t>>> ready_;
  // While the queue is looked at: what is free, by kind, but for what single jobs do not use; in near order, as found when it
  // was asked for, without what has been given since.
  std::map<DeviceKind, std::vector<NodeDevices>> free_;
  std::optional<std::map<std::string, int32_t>> used_;  // likewise, by queue
  JobId favoured_;                                      // to which others give way: it is the first in line; empty: none
  Nanos next_schedule_;                                 // monotonic: not before that, however much happens
  Nanos next_pass_;                                     // monotonic: over the queue, whatever happens
  std::set<JobId> in_line_;                             // QUEUED jobs that keep their place for a while (Job::line_until)
  std::set<JobId> dependents_;                          // QUEUED jobs that wait for others to succeed
  std::map<NodeId, Cordon> cordons_;
  std::map<std::string, QueueConfig> queues_;
  std::set<JobId> unfinished_;
  std::set<JobId> active_;     // of those, the ones that are not QUEUED: they have devices, or are planned for some
  std::set<JobId> measuring_;  // of those, the ones that wait for agents to measure
  std::map<NodeId, std::set<JobId>> awaited_;  // by the node that they wait for first; perhaps some that do not any more
  std::set<std::pair<Nanos, int64_t>> ended_;  // when (wall clock), and the submission
  std::map<NodeId, Node> nodes_;
  std::map<int64_t, NodeId> streams_;          // of admitted streams
  std::map<JobId, std::set<NodeId>> holders_;  // nodes by what is in their `copies`
  std::set<NodeId> gpu_nodes_;                 // that have reported GPUs
  std::map<uint64_t, NodeId> ring_;            // nodes that can be witnesses, scattered; those that follow a node are its own
  // By node: jobs that do not use it (JobRecord::excluded) and have not ended, and since when, by the wall clock.
  std::map<NodeId, std::map<JobId, Nanos>> unused_by_;
  std::deque<RankFailureFacts> faults_;  // the newest last
  Nanos began_;                          // monotonic: this server
  RankLogs logs_;
  int64_t last_submission_ = 0;
  int64_t fenced_reports_ = 0;

  // Of the Step that is running.
  Nanos now_, wall_;
  std::vector<Effect> effects_;
  std::set<JobId> touched_;                              // records to write
  std::map<JobId, std::vector<JobEvent>> notices_;       // for watchers
  std::set<NodeId> agent_dirty_, worker_dirty_;          // nodes to send to
  std::map<NodeId, std::vector<ReportAck>> stray_acks_;  // of ranks of no live generation
  bool schedule_ = false;
};

// "tp1 pp2 dp1 on 2 devices (0123456789ab, predicted step 1.8 ms)"
std::string SummaryOf(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_CONTROLLER_H_
