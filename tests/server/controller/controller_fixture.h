// A cluster around a Controller. It runs on one thread, and the test moves its clock. Agents and workers do at once what they
// should do. A planner answers with a given layout. A store keeps what was written, and the controller can be restarted from
// this store.
#ifndef LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_
#define LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/controller/controller.h"

namespace lynx::server::testing {

JobSpec MakeSpec(const std::string& name, int32_t min_ranks, int32_t max_ranks);

std::shared_ptr<const Plan> MakeTestPlan(const JobSpec& spec, const ParallelLayout& layout);

struct FakeRank {
  RankAssignment assignment;
  RankObservation seen;
  int64_t sequence = 0;
  std::vector<RankMessage> unacknowledged;
  bool released = false;
  std::optional<RankMessage> last_words;  // the rank sends them when it is asked to end
};

struct FakeNode {
  std::string name;
  int devices = 2;
  int64_t agent_stream = 0, worker_stream = 0;  // 0 = not attached
  std::string agent_boot = "a", worker_boot = "w";
  AgentState agent;
  AgentDesired wanted;
  std::map<RankKey, FakeRank> ranks;
  bool obedient = true;   // the daemon does at once what the server wants
  bool leases = false;    // true if its daemon knows leases
  bool encrypts = false;  // true if its daemon says that its ranks can encrypt
  bool hears = true;      // true if renewals reach it
  int64_t reports = 0;
  std::optional<LeaseRenewal> renewal;  // the newest renewal
  std::optional<WorkerDesired> last_wish;
  std::set<JobId> copies;             // the jobs whose copies are in its memory
  std::vector<WorkerDesired> wishes;  // all desired states that it received
  std::vector<RankLogLines> logs;
  int32_t witness_port() const { return 4000 + std::stoi(name.substr(1)); }  // n3: 4003
};

class Cluster {
 public:
  explicit Cluster(ControllerOptions options = {});
  ~Cluster();

  // ---- time ----
  void Advance(double seconds, double step = 0.25);

  // ---- clients ----
  // Returns the job's id. If the job was refused, returns an empty id, and `last_reply` says why.
  JobId Submit(const JobSpec& spec, const std::string& key = "", const std::string& owner = "");
  void Hold(const JobId& id, const std::string& reason = "");
  void Release(const JobId& id);
  void SetCordon(const std::string& node, std::optional<Cordon> cordon);
  void SetQueue(const QueueConfig& queue);
  void Cancel(const JobId& id, const std::string& reason = "");

  // Cancels with a checkpoint, if the ranks write one within `grace` (0: the usual time).
  void Leave(const JobId& id, Nanos grace = Nanos(0));

  // ---- nodes ----
  FakeNode& Node(const std::string& name) { return nodes_.at(name); }
  void AddNode(const std::string& name, int devices = 2, DeviceKind kind = DeviceKind::kCpu);
  void AttachAgent(const std::string& name);
  void AttachWorker(const std::string& name);
  void DetachAgent(const std::string& name);
  void DetachWorker(const std::string& name);
  // Reports the worker's full state as it is now.
  void Report(const std::string& name);

  // ---- ranks ----
  FakeRank* RankOf(const JobId& job, int32_t rank);
  std::string NodeOfRank(const JobId& job, int32_t rank);
  void Say(const JobId& job, int32_t rank, RankReport body, bool report = true);
  void Exit(const JobId& job, int32_t rank, int code, const std::string& reason = "", bool peer_lost = false);
  void SayAll(const JobId& job, const std::function<RankMessage(int32_t)>& make);
  void AllReady(const JobId& job, int64_t next_step = 0);
  void StepAll(const JobId& job, int64_t step);
  void FinishAll(const JobId& job);
  int32_t Ranks(const JobId& job) { return static_cast<int32_t>(Record(job).ranks.size()); }

  // ---- planner ----
  // Answers every waiting request for a plan with this layout.
  void AnswerPlans(const ParallelLayout& layout);
  // `beside`: the time that a step takes now with the jobs' present plans.
  void AnswerPlansWith(const decltype(PlanReady::result)& result, Nanos beside = Nanos(0));
  // Answers every waiting request with what `planner` makes of it.
  void AnswerPlansBy(const std::function<PlanReady(const PlanJob&)>& planner);
  const std::vector<PlanJob>& plans() const { return plans_; }
  // Lets the node's agent measure everything that the server asks for.
  void Measure(const std::string& name);
  void MeasureAll();

  // Submits a job and brings it to RUNNING.
  JobId Run(const JobSpec& spec, const ParallelLayout& layout);

  // ---- the server ----
  // Has the effect of kill -9 and a restart: the controller begins with what was written, and all streams are gone.
  void RestartServer();
  Controller& controller() { return *controller_; }
  Nanos now() const { return now_; }  // monotonic
  const JobRecord& Record(const JobId& id) const { return *controller_->Find(id); }
  const JobRecord& Stored(const JobId& id) const { return stored_.at(id); }
  size_t StoredJobs() const { return stored_.size(); }
  JobState State(const JobId& id) const { return Record(id).state; }
  // Returns the kinds of the job's events in the store, as "kind kind kind".
  std::string Kinds(const JobId& id);
  const std::vector<JobEvent>& Events(const JobId& id) { return events_[id]; }
  const std::optional<Reply>& last_reply() const { return last_reply_; }
  const std::map<int64_t, absl::Status>& closed() const { return closed_; }
  const std::vector<InsertCheckpoint>& checkpoints() const { return checkpoints_; }
  int64_t updates() const { return updates_; }
  const StepTrace* TraceOf(const JobId& id) const { return traces_.contains(id) ? &traces_.at(id) : nullptr; }
  void AddOrphan(const std::string& node, const RankMessage& message) { orphans_[node].push_back(message); }
  const std::vector<RankMessage>& Strays(const std::string& node) { return orphans_[node]; }

  void Send(EventBody body);
  // Lets obedient workers do what they should do and report it, until nothing changes.
  void Settle();
  void ReportAll();

 private:
  void Deliver(const RankKey& key);
  bool Obey(FakeNode& node);
  // Ends a rank that the server does not want any more. The rank stays in the reports until the server releases it. Returns
  // false if it had already ended.
  static bool End(FakeRank& rank);
  void Acknowledge(FakeNode& node, const WorkerDesired& desired);
  void Carry(std::vector<Effect> effects);

  ControllerOptions options_;
  std::unique_ptr<Controller> controller_;
  Nanos now_{1'000'000'000'000};
  std::map<std::string, FakeNode> nodes_;
  Controller::Settings settings_;  // the settings in the store
  std::map<JobId, JobRecord> stored_;
  std::map<JobId, InsertPlan> stored_plans_;
  std::map<JobId, std::vector<JobEvent>> events_;
  std::vector<InsertCheckpoint> checkpoints_;
  std::map<JobId, StepTrace> traces_;
  std::map<int64_t, absl::Status> closed_;
  std::map<std::string, std::vector<RankMessage>> orphans_;
  std::vector<PlanJob> plans_;
  std::optional<Reply> last_reply_;
  int64_t submissions_ = 0, requests_ = 0, streams_ = 0, updates_ = 0;
  int32_t ports_ = 4000;
};

}  // namespace lynx::server::testing

#endif  // LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_
