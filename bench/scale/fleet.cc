#include "bench/scale/fleet.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/rank_key.h"
#include "common/version.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "node/backoff.h"
#include "node/heartbeat.h"
#include "planner/cost/hardware_profile.h"
#include "proto/convert.h"
#include "proto/message_limit.h"

namespace lynx::scale {
namespace {

Nanos Now() { return RealClock().Monotonic(); }

std::shared_ptr<grpc::Channel> Dial(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

void Samples::Add(double millis) {
  const std::lock_guard lock(mutex_);
  values_.push_back(millis);
}

std::vector<double> Samples::Take() {
  const std::lock_guard lock(mutex_);
  std::sort(values_.begin(), values_.end());
  return std::exchange(values_, {});
}

double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// One of the two streams of a node: writes the newest report and reads the desired state.
template <class Report, class Desired>
class Stream : public grpc::ClientBidiReactor<Report, Desired> {
 public:
  using Take = std::function<void(const Desired&)>;
  Stream(Take take, std::function<void()> idle, std::function<void(const grpc::Status&)> ended)
      : take_(std::move(take)), idle_(std::move(idle)), ended_(std::move(ended)) {}

  grpc::ClientContext& context() { return context_; }
  void Begin() {
    this->AddHold();  // because writes are started outside the callbacks of this object
    this->StartRead(&desired_);
    this->StartCall();
  }
  // Call only while no report is being written. Does nothing after the stream is broken.
  void Send(Report report) {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    report_ = std::move(report);
    this->StartWrite(&report_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(mutex_);
      broken_ = true;
      return this->RemoveHold();
    }
    take_(desired_);
    this->StartRead(&desired_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) idle_();
  }
  void OnDone(const grpc::Status& status) override { ended_(status); }

  grpc::ClientContext context_;
  const Take take_;
  const std::function<void()> idle_;
  const std::function<void(const grpc::Status&)> ended_;
  std::mutex mutex_;
  bool broken_ = false;  // guarded by mutex_
  Report report_;
  Desired desired_;
};

class Node {
 public:
  Node(Fleet& fleet, int number)
      : fleet_(fleet), name_(absl::StrCat("node", number)), channel_(scale::Dial(fleet.options_.server)),
        stub_(v1::Cluster::NewStub(channel_)), agent_backoff_({}, static_cast<uint64_t>(2 * number)),
        worker_backoff_({}, static_cast<uint64_t>(2 * number + 1)), agent_beat_(static_cast<uint64_t>(2 * number)),
        worker_beat_(static_cast<uint64_t>(2 * number + 1)) {}

  void DialAgent() {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    agent_ = std::make_unique<AgentStream>([this](const auto& desired) { TakeAgent(desired); }, [this] { AgentIdle(); },
                                           [this](const auto& status) { AgentEnded(status); });
    stub_->async()->AttachAgent(&agent_->context(), agent_.get());
    agent_writing_ = false;
    agent_->Begin();
    agent_beat_.Attached();
    SendAgent();
  }
  void DialWorker() {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    worker_ = std::make_unique<WorkerStream>([this](const auto& desired) { TakeWorker(desired); }, [this] { WorkerIdle(); },
                                             [this](const auto& status) { WorkerEnded(status); });
    stub_->async()->AttachWorker(&worker_->context(), worker_.get());
    worker_writing_ = false;
    worker_->Begin();
    worker_beat_.Attached();
    for (auto& [key, rank] : ranks_) rank.sent = 0;
    SendWorker();
  }
  void Beat() {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    const Nanos now = Now();
    if (agent_beat_.Due(now)) SendAgent();
    if (worker_beat_.Due(now)) SendWorker();
    Again(std::min(agent_beat_.Left(now), worker_beat_.Left(now)));
  }
  void Again(Nanos delay) {
    fleet_.At(Now() + std::max(delay, Nanos(50'000'000)), [this] { Beat(); });
  }
  bool attached() {
    const std::lock_guard lock(mutex_);
    return agent_answered_ && worker_answered_;
  }
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      if (agent_ != nullptr) agent_->context().TryCancel();
      if (worker_ != nullptr) worker_->context().TryCancel();
    }
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return agent_ == nullptr && worker_ == nullptr; });
  }

 private:
  using AgentStream = Stream<v1::AgentReport, v1::AgentDesired>;
  using WorkerStream = Stream<v1::WorkerReport, v1::WorkerDesired>;
  struct Rank {
    v1::RankStatus status;
    std::vector<v1::RankReport> reports;  // not acknowledged yet
    int64_t sequence = 0, sent = 0;
    bool endless = false;
  };

  // The caller of a function below must hold mutex_, unless the function locks mutex_ itself.
  void SendAgent() {
    if (agent_ == nullptr || agent_writing_) return void(agent_due_ = true);
    v1::AgentReport report;
    report.set_node(name_);
    report.set_boot_id("a");
    report.set_version(kVersion);
    for (int i = 0; i < fleet_.options_.devices; ++i) {
      v1::Device& device = *report.add_devices();
      device.set_index(i);
      device.set_kind("cpu");
      device.set_model("simulated");
      device.set_memory_bytes(int64_t{16} << 30);
      device.add_cores(i);
    }
    HardwareProfile profile = StatedCpuProfile();
    for (const v1::LayerShape& shape : shapes_) {
      ShapeTimes& times = profile.measured.emplace_back(ShapeTimes{.shape = FromProto(shape).value()});
      for (OpTimes& op : times.ops) op.forward = op.backward = Nanos(1'000);
    }
    *report.mutable_profile() = ToProto(profile);
    agent_writing_ = true;
    agent_due_ = false;
    agent_beat_.Sent(Now());
    agent_->Send(std::move(report));
  }

  void SendWorker() {
    if (worker_ == nullptr || worker_writing_) return void(worker_due_ = true);
    v1::WorkerReport report;
    report.set_node(name_);
    report.set_boot_id("w");
    report.set_version(kVersion);
    report.set_address("127.0.0.1");
    report.set_number(++number_);
    report.set_witness_port(1);
    report.set_renewed(renewed_);
    for (auto& [key, rank] : ranks_) {
      for (const v1::RankReport& one : rank.reports) {
        if (one.sequence() <= rank.sent) continue;
        *report.add_reports() = one;
        rank.sent = one.sequence();
      }
      *report.add_ranks() = rank.status;
    }
    worker_writing_ = true;
    worker_due_ = false;
    const Nanos now = Now();
    worker_beat_.Sent(now);
    asked_at_[number_] = now;
    worker_->Send(std::move(report));
  }

  // The caller must not hold mutex_.
  void AgentIdle() {
    const std::lock_guard lock(mutex_);
    agent_writing_ = false;
    if (agent_due_) SendAgent();
  }
  void WorkerIdle() {
    const std::lock_guard lock(mutex_);
    worker_writing_ = false;
    if (worker_due_) SendWorker();
  }
  // gRPC calls this last for the stream. Afterwards the fleet's thread destroys the stream (Redial).
  void AgentEnded(const grpc::Status& status) {
    fleet_.Ended(status.error_message());
    const std::lock_guard lock(mutex_);
    agent_answered_ = false;
    Redial(agent_, agent_backoff_, [this] { DialAgent(); });
  }
  void WorkerEnded(const grpc::Status& status) {
    fleet_.Ended(status.error_message());
    const std::lock_guard lock(mutex_);
    worker_answered_ = false;
    number_ = renewed_ = 0;  // as if the daemon were new: that is more work for the server
    asked_at_.clear();
    answered_at_ = Nanos(0);
    Redial(worker_, worker_backoff_, [this] { DialWorker(); });
  }
  template <class One>
  void Redial(std::unique_ptr<One>& stream, Backoff& backoff, std::function<void()> dial) {
    // The fleet's thread destroys the stream, because this function is called by the stream itself.
    std::shared_ptr<One> old = std::move(stream);
    stream = nullptr;
    ended_.notify_all();
    if (stop_) {
      fleet_.At(Now(), [old] {});
      return;
    }
    fleet_.At(Now() + backoff.Next(), [old, dial = std::move(dial)] { dial(); });
  }

  void TakeAgent(const v1::AgentDesired& desired) {
    const std::lock_guard lock(mutex_);
    agent_answered_ = true;
    agent_backoff_.Reset();
    agent_beat_.SetInterval(Nanos(desired.heartbeat_ns()));
    bool news = false;
    for (const v1::LayerShape& shape : desired.shapes()) {
      const bool known = std::any_of(shapes_.begin(), shapes_.end(), [&](const v1::LayerShape& other) {
        return other.SerializeAsString() == shape.SerializeAsString();
      });
      if (known) continue;
      shapes_.push_back(shape);
      news = true;
    }
    if (news) SendAgent();
  }

  void TakeWorker(const v1::WorkerDesired& desired) {
    const std::lock_guard lock(mutex_);
    worker_answered_ = true;
    worker_backoff_.Reset();
    if (desired.has_renewal()) return TakeRenewal(desired.renewal());
    worker_beat_.SetInterval(Nanos(desired.heartbeat_ns()));
    bool news = false;
    for (const v1::ReportAck& ack : desired.acks()) news |= Acknowledge(ack);
    std::map<RankKey, const v1::RankAssignment*> wanted;
    for (const v1::RankAssignment& assignment : desired.ranks()) {
      wanted[{JobId(assignment.job_id()), Generation(assignment.generation()), assignment.rank()}] = &assignment;
    }
    for (const auto& [key, assignment] : wanted) news |= Obey(key, *assignment);
    for (auto& [key, rank] : ranks_) {
      if (wanted.contains(key) || rank.status.phase() == v1::RANK_PHASE_EXITED) continue;
      if (rank.status.phase() == v1::RANK_PHASE_RUNNING) --fleet_.running_;
      rank.status.set_phase(v1::RANK_PHASE_EXITED);
      rank.status.set_exit_code(4);
      rank.status.set_reason("was asked to end");
      news = true;
    }
    if (news) SendWorker();
  }

  void TakeRenewal(const v1::LeaseRenewal& renewal) {
    const Nanos now = Now();
    renewed_ = renewal.report();
    const auto asked = asked_at_.find(renewal.report());
    if (asked != asked_at_.end()) fleet_.answers_.Add(Millis(now - asked->second));
    asked_at_.erase(asked_at_.begin(), asked_at_.upper_bound(renewal.report()));
    if (answered_at_ != Nanos(0)) fleet_.intervals_.Add(Millis(now - answered_at_));
    answered_at_ = now;
  }

  bool Acknowledge(const v1::ReportAck& ack) {
    const auto found = ranks_.find({JobId(ack.job_id()), Generation(ack.generation()), ack.rank()});
    if (found == ranks_.end()) return false;
    std::erase_if(found->second.reports, [&](const v1::RankReport& report) { return report.sequence() <= ack.sequence(); });
    if (!ack.released() || found->second.status.phase() != v1::RANK_PHASE_EXITED) return false;
    ranks_.erase(found);
    return true;
  }

  bool Obey(const RankKey& key, const v1::RankAssignment& assignment) {
    const auto [at, is_new] = ranks_.try_emplace(key);
    Rank& rank = at->second;
    if (is_new) {
      rank.status.set_job_id(key.job.value);
      rank.status.set_generation(key.generation.value);
      rank.status.set_rank(key.rank);
      rank.status.set_host("127.0.0.1");
      rank.status.set_port(1 + key.rank % 60'000);
      rank.status.set_phase(v1::RANK_PHASE_LISTENING);
      ++fleet_.told_;
      return true;
    }
    if (assignment.peers_size() == 0 || rank.status.phase() != v1::RANK_PHASE_LISTENING) return false;
    rank.status.set_phase(v1::RANK_PHASE_RUNNING);
    ++fleet_.running_;
    Say(key, rank).mutable_ready()->set_next_step(std::max<int64_t>(0, assignment.resume_step()));
    const int64_t steps = assignment.spec().train().steps();
    if (steps <= kShortSteps) fleet_.At(Now() + fleet_.options_.train, [this, key, steps] { Finish(key, steps); });
    return true;
  }

  v1::RankReport& Say(const RankKey& key, Rank& rank) {
    v1::RankReport& report = rank.reports.emplace_back();
    report.set_job_id(key.job.value);
    report.set_generation(key.generation.value);
    report.set_rank(key.rank);
    report.set_sequence(++rank.sequence);
    return report;
  }

  // The caller must not hold mutex_.
  void Finish(const RankKey& key, int64_t steps) {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(key);
    if (stop_ || found == ranks_.end() || found->second.status.phase() != v1::RANK_PHASE_RUNNING) return;
    Rank& rank = found->second;
    v1::StepReport& step = *Say(key, rank).mutable_step();
    step.set_step(steps - 1);
    step.set_loss(1);
    step.set_tokens(1);
    step.set_duration_ns(1'000'000);
    Say(key, rank).mutable_done()->set_steps(steps);
    rank.status.set_phase(v1::RANK_PHASE_EXITED);
    --fleet_.running_;
    SendWorker();
  }

  Fleet& fleet_;
  const std::string name_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Cluster::Stub> stub_;

  std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_.
  Backoff agent_backoff_, worker_backoff_;
  std::unique_ptr<AgentStream> agent_;
  std::unique_ptr<WorkerStream> worker_;
  bool agent_writing_ = false, worker_writing_ = false, agent_due_ = false, worker_due_ = false;
  bool agent_answered_ = false, worker_answered_ = false;
  Heartbeat agent_beat_, worker_beat_;
  Nanos answered_at_;
  int64_t number_ = 0, renewed_ = 0;
  std::map<int64_t, Nanos> asked_at_;
  std::vector<v1::LayerShape> shapes_;
  std::map<RankKey, Rank> ranks_;
  bool stop_ = false;
};

Fleet::Fleet(FleetOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.nodes; ++i) nodes_.push_back(std::make_unique<Node>(*this, i));
  thread_ = std::thread([this] { Main(); });
  for (const auto& node : nodes_) {
    At(Now(), [one = node.get()] {
      one->DialAgent();
      one->DialWorker();
      one->Again(Nanos(0));
    });
  }
}

Fleet::~Fleet() {
  for (const auto& node : nodes_) node->Stop();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

int Fleet::attached() const {
  return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->attached(); }));
}

void Fleet::Ended(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++ended_[reason];
}

std::map<std::string, int64_t> Fleet::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void Fleet::At(Nanos time, std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  items_.push({time, std::move(action)});
  changed_.notify_all();
}

void Fleet::Main() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (items_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Nanos left = items_.top().time - Now();
    if (left > Nanos(0)) {
      changed_.wait_for(lock, std::chrono::nanoseconds(left.value));
      continue;
    }
    const std::function<void()> action = items_.top().action;
    items_.pop();
    lock.unlock();
    action();
    lock.lock();
  }
}

}  // namespace lynx::scale
