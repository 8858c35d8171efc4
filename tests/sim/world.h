// The state and the parts of a simulation. Test support.
#ifndef LYNX_TESTS_SIM_WORLD_H_
#define LYNX_TESTS_SIM_WORLD_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "node/lease.h"
#include "planner/search/make_plan.h"
#include "server/controller/controller.h"
#include "tests/sim/simulation.h"

namespace lynx::server::sim {

inline Nanos Seconds(double seconds) { return Nanos(static_cast<int64_t>(seconds * 1e9)); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix64(seed)) {}
  uint64_t Next() { return Mix64(state_++); }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  bool Chance(double probability) { return static_cast<double>(Next() >> 11) < probability * 0x1p53; }
  double Between(double low, double high) { return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Runs actions in the order of their times. Actions with the same time run in the order in which they were added.
class Timeline {
 public:
  Nanos now() const { return now_; }
  void After(Nanos delay, std::function<void()> action) { queue_.push({now_ + delay, ++sequence_, std::move(action)}); }
  bool empty() const { return queue_.empty(); }
  void RunNext() {
    Item item = queue_.top();
    queue_.pop();
    now_ = item.time;
    item.action();
  }

 private:
  struct Item {
    Nanos time;
    int64_t sequence;
    std::function<void()> action;
    bool operator<(const Item& other) const { return std::pair(other.time, other.sequence) < std::pair(time, sequence); }
  };
  Nanos now_{1'000'000'000'000};
  int64_t sequence_ = 0;
  std::priority_queue<Item> queue_;
};

// The state that all parts of the simulation share.
struct Common {
  Options options;
  Random random;
  Timeline timeline;
  Outcome outcome;

  void Tell(const std::string& text) {
    if (options.tells)
      outcome.history.push_back(absl::StrCat(FormatDuration(timeline.now() - Nanos(1'000'000'000'000)), " ", text));
  }
  void Violation(const std::string& text) {
    Tell("VIOLATION " + text);
    outcome.violations.push_back(text);
  }
};

// A rank's process, and the daemon's record of it. Once the process has started, the record outlives the daemon
// and a crash of the machine.
struct SimRank {
  RankPhase phase = RankPhase::kListening;
  bool alive = false;  // true: the process is alive
  bool asked_to_end = false, killed = false;
  Nanos asked_at;
  bool yield = false;  // true: the yield file exists
  bool released = false;
  int32_t port = 0;
  int32_t exit_code = 0;
  std::string reason;
  bool peer_lost = false;
  RankAssignment assignment;  // set with the peers' addresses when the process starts
  int64_t sequence = 0;
  std::deque<RankMessage> messages;  // messages that are not acknowledged yet
};

struct SimNode {
  NodeId name;
  int32_t devices = 1;
  bool powered = true;
  bool agent_up = true, worker_up = true;
  int64_t agent_stream = 0, worker_stream = 0;  // 0: no stream
  int64_t boots = 0;
  bool cut_to_server = false, cut_from_server = false;
  bool isolated = false;  // true if the node is cut off from all other nodes
  bool apart = false;     // in a separate part of the network, which reaches neither the server nor the nodes outside it
  bool Reaches(const SimNode& other) const { return this == &other || (!isolated && !other.isolated && apart == other.apart); }
  std::optional<WorkerDesired> wish;  // the newest desired state that was received since the daemon began
  std::map<RankKey, SimRank> ranks;
  std::vector<LayerShape> measured;
  bool news = false;
  Bytes memory;                // the real memory of each device; the node's agent reports more
  std::optional<Lease> lease;  // the lease of the running daemon
  // The contents of the lease's files, which outlive the daemon.
  Nanos deadline = Lease::kForever;
  LeaseTerms terms;
  Nanos asked_at, reported_at;
  int64_t reports = 0;
};

// The state of a checkpoint directory.
struct Disk {
  Generation fence;
  int64_t step = -1;  // the step of the newest checkpoint; -1: there is none
  int64_t commits = 0;
};

// The ranks of one generation that train together.
struct Gang {
  JobId job;
  Generation generation;
  std::map<int32_t, SimNode*> present;  // the node of each rank that has joined
  bool connected = false, over = false;
  int64_t step = 0;
  int64_t base_commits = 0;  // the number of the directory's commits when this gang last looked at it
};

struct ClientJob {
  std::string key;
  JobSpec spec;
  std::optional<JobId> acknowledged;
  bool cancelled = false;
  bool refused = false;  // true if the job is refused for good, because a job that must succeed first has failed
};

class World {
 public:
  explicit World(const Options& options);
  Outcome Run();

 private:
  // server.cc
  void StartServer();
  void CrashServer(Nanos away);
  // Gives the controller an event. Returns true if the server is still alive.
  bool Give(EventBody body);
  void Carry(std::vector<Effect> effects, const EventBody* cause);
  void Commit(const std::vector<Effect>& effects);
  void CarryOne(Effect& effect);
  void MakePlan(const PlanJob& ask);
  void Tick();
  void CheckStore(const std::vector<Effect>& effects);

  // servers.cc: other servers, which lead while this one is stopped
  void StopLeader();
  // `unfinished`: what the leader had decided when it was stopped; `committed`: its durable effects are in the store.
  void Sleep(std::vector<Effect> unfinished, bool committed);
  // When the store is there, another server leads, unless the leader of this epoch continues before.
  void TakeOver(int64_t epoch);
  // If the server that led with this epoch is stopped, it continues.
  void WakeUp(int64_t epoch);
  void BreakAllStreams(bool server_notices = false);
  bool GiveToSleeper(const JobSubmitted& submitted, size_t client);
  // The leader is stopped, and no other server leads yet: what arrives waits for it.
  bool Sleeps() const { return controller_ == nullptr && !sleepers_.empty() && sleepers_.back().epoch == epoch_; }
  // Somebody asks the server that leads, or one that is stopped, about a job.
  void Read();
  // Compares the answer that `server` gives about the job with the store as it was when the question was asked.
  void CheckAnswer(const Controller& server, const JobId& job, int64_t events_then);

  // outages.cc: a store that is away for a while
  void StoreFails();
  void StoreReturns();
  // Does what the event loop does while the store is away: keeps the effects, and the effects that depend on them.
  void Keep(std::vector<Effect> effects);
  // The store wrote nothing of what is kept: kept submissions are dropped, and their callers get an error. Other effects stay
  // kept.
  void LoseSubmissions();
  // The process that led has ended.
  void ForgetKept();

  // A stream between the server and a node's daemon. server.cc has its functions too.
  struct Stream {
    SimNode* node = nullptr;
    bool worker = false;
    Nanos to_server_free, from_server_free;  // when all messages that were sent before have arrived
    int64_t epoch = 0;
    std::deque<EventBody> to_server;
    std::deque<std::function<void(SimNode&)>> to_node;
  };
  void Dial(SimNode& node, bool worker);
  void ToServer(int64_t stream, EventBody body);
  void ToNode(int64_t stream, std::function<void(SimNode&)> deliver);
  Nanos Latency(Nanos& free);
  void NextToServer(int64_t stream);
  void NextToNode(int64_t stream);
  void BreakStream(int64_t stream, bool server_notices);
  void KeepAlive(int64_t stream);

  // node.cc
  void NodeTick(SimNode& node);
  void Report(SimNode& node);
  void ReportAgent(SimNode& node);
  void KeepLease(SimNode& node);
  void Obey(SimNode& node);
  void StartProcess(SimNode& node, const RankKey& key, SimRank& rank);
  void EndProcess(SimNode& node, const RankKey& key, SimRank& rank, int32_t code, const std::string& reason = "",
                  bool peer_lost = false);
  void TakeWish(SimNode& node, const WorkerDesired& wish);
  void StopAgent(SimNode& node);
  void StopWorker(SimNode& node);
  void CrashNode(SimNode& node);
  void StartDaemons(SimNode& node);

  // gang.cc
  Gang& GangOf(const RankKey& key);
  void Join(SimNode& node, const RankKey& key);
  void Connect(Gang& gang);
  bool RunsOut(Gang& gang);
  bool FailsCheck(Gang& gang);
  int64_t StepsOf(const Gang& gang) const;
  void TrainStep(Gang& gang);
  bool Write(Gang& gang);
  void Break(Gang& gang);
  void EndGang(Gang& gang, int32_t code, const std::function<void(SimRank&, const RankKey&)>& last_words);
  SimRank* LiveRank(Gang& gang, int32_t rank);
  bool AllAlive(Gang& gang);
  bool AllReach(Gang& gang);
  template <class Body>
  void Say(SimNode& node, const RankKey& key, Body body);
  void CheckDevices(Gang& gang);
  void CheckGenerations(const Gang& gang);

  // faults.cc
  void Submit(size_t client);
  void Fault();
  void Mend();
  bool MayHaveFailed(const ClientJob& client, const JobRecord& job) const;
  bool MayBeCancelled(const ClientJob& client, const JobRecord& job) const;

  // people.cc: what people ask for, and checks that they get it
  void Meddle();
  void LetGo();
  // `plan`: the plan with which the generation begins.
  void CheckNewGeneration(const JobRecord& job, const Plan& plan);
  const JobRecord* StoredByName(const std::string& name) const;
  void CheckEnd();
  bool AllEnded() const;

  Common common_;
  std::map<NodeId, SimNode> nodes_;
  std::vector<ClientJob> clients_;
  std::map<int64_t, size_t> requests_;  // the key is a pending submission, the value is the index of its client
  int64_t last_request_ = 0, last_id_ = 0;

  std::unique_ptr<Controller> controller_;  // null: the server is down
  int64_t epoch_ = 0;                       // becomes larger by one with each new server
  ControllerOptions controller_options_;
  // A leader that is stopped.
  struct Sleeper {
    std::unique_ptr<Controller> controller;
    int64_t epoch = 0;
    std::vector<Effect> unfinished;
    bool committed = true;
    std::vector<EventBody> backlog;      // the events that arrived since then
    std::map<int64_t, size_t> requests;  // as requests_
    // The jobs about which it was asked since then, with the numbers of their events in the store at that time.
    std::vector<std::pair<JobId, int64_t>> questions;
  };
  std::vector<Sleeper> sleepers_;          // in the order of their epochs
  std::unique_ptr<Controller> forgetful_;  // for the mistake kStaleRead: a standby that keeps all it knew as leader
  std::optional<Random> stops_;            // nullopt: there is one server, which is never stopped
  bool stop_in_commit_ = false;
  std::optional<Random> outages_;  // nullopt: the store is always there
  std::optional<Random> reads_;
  bool store_away_ = false;
  Nanos away_since_;
  bool paused_ = false;  // the leader cannot renew its lease, so it does not lead
  // What the event loop of the leader keeps while the store is away.
  std::vector<std::vector<Effect>> pending_;  // not written yet, in the order of the events that caused them
  std::vector<Effect> doubtful_;              // effects that were perhaps written
  bool doubt_written_ = false;                // true: doubtful_ was written; the leader does not know this
  std::vector<Effect> held_;                  // effects that depend on pending_ or doubtful_
  struct Stored {
    JobRecord record;
    std::shared_ptr<const Plan> plan;
    int64_t events = 0;
  };
  std::map<JobId, Stored> store_;
  Controller::Settings settings_;  // the settings that are in the store
  std::map<int64_t, Stream> streams_;
  int64_t last_stream_ = 0;
  int32_t last_port_ = 1000;

  std::map<JobId, Disk> disks_;
  std::map<std::pair<JobId, int64_t>, Gang> gangs_;
  bool faults_over_ = false;
  bool leases_ = true;  // false: the daemons are of a version without leases
  NodeId doomed_;       // a node that does not return after the faults are over; empty: none
  NodeId bad_;          // a node whose ranks fail their checks; empty: none
};

}  // namespace lynx::server::sim

#endif  // LYNX_TESTS_SIM_WORLD_H_
