// See metrics.h.
#include "server/metrics/metrics.h"

#include <algorithm>
#include <utility>

#include "common/metric_names.h"
#include "proto/event_kind.h"

namespace lynx::server {
namespace {

const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
// Buckets for times that a person waits: up to a day.
const prometheus::Histogram::BucketBoundaries kWaitBuckets = {0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 14400, 86400};

constexpr const char* kPresences[kNodePresenceCount] = {"attached", "partial", "absent", "lost"};
constexpr const char* kTriggers[kPlanTriggerCount] = {"first", "speculation", "loss", "memory", "growth", "drift"};
constexpr const char* kResults[] = {"plan", "infeasible", "error"};
constexpr const char* kReasons[] = {"held", "dependency", "structural", "quota", "ahead", "capacity", "near-miss"};

class Joined : public prometheus::Collectable {
 public:
  explicit Joined(std::vector<std::shared_ptr<prometheus::Collectable>> parts) : parts_(std::move(parts)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> all;
    for (const auto& part : parts_) {
      for (prometheus::MetricFamily& family : part->Collect()) all.push_back(std::move(family));
    }
    return all;
  }

 private:
  const std::vector<std::shared_ptr<prometheus::Collectable>> parts_;
};

}  // namespace

ServerMetrics::ServerMetrics()
    : registry_(std::make_shared<prometheus::Registry>()), jobs_(Gauges(*registry_, metric::kJobs)),
      pending_(Gauges(*registry_, metric::kJobsPending)), nodes_(Gauges(*registry_, metric::kNodes)),
      devices_(Gauges(*registry_, metric::kDevices)), devices_used_(Gauges(*registry_, metric::kDevicesUsed)),
      plan_seconds_(Histograms(*registry_, metric::kPlanSeconds)), call_seconds_(Histograms(*registry_, metric::kCallSeconds)),
      ended_(Counters(*registry_, metric::kJobsEnded)), calls_(Counters(*registry_, metric::kCalls)) {
  // The following series exist from the start with the value 0, because a rate cannot show an increase if the series begins
  // with it.
  AddBuildInfo(*registry_);
  CounterFamily& seconds = Counters(*registry_, metric::kDeviceSeconds);
  for (int i = 0; i < kDeviceUseCount; ++i)
    device_seconds_[i] = &seconds.Add({{"use", DeviceUseName(static_cast<DeviceUse>(i))}});
  CounterFamily& lost = Counters(*registry_, metric::kDeviceSecondsLost);
  for (int i = 0; i < kLossCauseCount; ++i)
    device_seconds_lost_[i] = &lost.Add({{"cause", LossCauseName(static_cast<LossCause>(i))}});
  HistogramFamily& recovery = Histograms(*registry_, metric::kRecovery);
  for (int i = 0; i < kRecoveryPhaseCount; ++i) {
    recovery_[i] = &recovery.Add({{"phase", RecoveryPhaseName(static_cast<RecoveryPhase>(i))}}, kWaitBuckets);
  }
  recovery_total_ = &recovery.Add({{"phase", "total"}}, kWaitBuckets);
  queue_wait_ = &Histograms(*registry_, metric::kQueueWait).Add({}, kWaitBuckets);
  first_step_ = &Histograms(*registry_, metric::kFirstStep).Add({}, kWaitBuckets);
  commit_seconds_ = &Histograms(*registry_, metric::kStoreCommitSeconds).Add({}, kSecondsBuckets);
  agents_ = &Gauges(*registry_, metric::kAgentsAttached).Add({});
  workers_ = &Gauges(*registry_, metric::kWorkersAttached).Add({});
  cordoned_ = &Gauges(*registry_, metric::kNodesCordoned).Add({});
  queue_ = &Gauges(*registry_, metric::kEventQueue).Add({});
  outbox_ = &Gauges(*registry_, metric::kOutboxLength).Add({});
  submitted_ = &Counters(*registry_, metric::kJobsSubmitted).Add({});
  commit_failures_ = &Counters(*registry_, metric::kStoreCommitFailures).Add({});
  leases_ = &Counters(*registry_, metric::kLeasesRenewed).Add({});
  fenced_ = &Counters(*registry_, metric::kFencedReports).Add({});
  refused_ = &Counters(*registry_, metric::kCallsRefused).Add({});
  for (const char* trigger : kTriggers) {
    for (const char* result : kResults) plan_seconds_.Add({{"trigger", trigger}, {"result", result}}, kSecondsBuckets);
  }
  for (const JobState state : {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled})
    ended_.Add({{"state", EnumName(state)}});
  Counted({});
}

std::shared_ptr<prometheus::Collectable> ServerMetrics::page() const {
  return std::make_shared<Joined>(std::vector<std::shared_ptr<prometheus::Collectable>>{registry_, of_jobs_.page()});
}

void ServerMetrics::Counted(const ClusterStats& stats) {
  for (int i = 0; i < kJobStateCount; ++i) {
    jobs_.Add({{"state", EnumName(static_cast<JobState>(i))}}).Set(static_cast<double>(stats.jobs[static_cast<size_t>(i)]));
  }
  for (const char* reason : kReasons) {
    const auto found = stats.pending.find(reason);
    pending_.Add({{"reason", reason}}).Set(found == stats.pending.end() ? 0 : static_cast<double>(found->second));
  }
  for (int i = 0; i < kNodePresenceCount; ++i) {
    nodes_.Add({{"state", kPresences[i]}}).Set(static_cast<double>(stats.nodes[static_cast<size_t>(i)]));
  }
  for (const auto& [kind, devices] : {std::pair("cpu", stats.cpu), std::pair("cuda", stats.cuda)}) {
    devices_.Add({{"kind", kind}}).Set(static_cast<double>(devices.all));
    devices_used_.Add({{"kind", kind}}).Set(static_cast<double>(devices.used));
  }
  cordoned_->Set(static_cast<double>(stats.cordoned));
  agents_->Set(static_cast<double>(stats.agents));
  workers_->Set(static_cast<double>(stats.workers));
  fenced_->Increment(std::max(0.0, static_cast<double>(stats.fenced_reports) - fenced_->Value()));
}

void ServerMetrics::PlanMade(const PlanReady& ready, PlanTrigger trigger, Nanos took) {
  plan_seconds_
      .Add({{"trigger", kTriggers[static_cast<size_t>(trigger)]}, {"result", kResults[ready.result.index()]}}, kSecondsBuckets)
      .Observe(Seconds(took));
}

void ServerMetrics::SetQueues(size_t events, size_t tasks) {
  queue_->Set(static_cast<double>(events));
  outbox_->Set(static_cast<double>(tasks));
}

void ServerMetrics::Called(const std::string& method, const std::string& code, Nanos took) {
  calls_.Add({{"method", method}, {"code", code}}).Increment();
  call_seconds_.Add({{"method", method}}, kSecondsBuckets).Observe(Seconds(took));
}

void ServerMetrics::Committed(Nanos took, bool ok) {
  commit_seconds_->Observe(Seconds(took));
  if (!ok) commit_failures_->Increment();
}

void ServerMetrics::Step(const StepRecorded& step, const JobRecord& job, int32_t devices, Nanos wall) {
  of_jobs_.Step(step, job, devices);
  if (IsFinal(job.state)) return;
  Account(job, timelines_[job.id].OnStep(step.step.step, step.step.duration, step.new_step, wall, devices));
}

void ServerMetrics::Happened(const JobRecord& job, const std::vector<JobEvent>& events, int32_t devices) {
  // Only jobs that have had devices get their own series, because thousands of jobs may wait.
  const bool shown = devices > 0 || of_jobs_.Shows(job.id);
  for (const JobEvent& event : events) {
    if (event.kind == EventKindName(EventKind::kSubmitted)) submitted_->Increment();
    if (IsFinal(event.state)) ended_.Add({{"state", EnumName(event.state)}}).Increment();
    if (shown) of_jobs_.Happened(job, event);
    Account(job, timelines_[job.id].OnEvent(event, devices));
  }
  if (shown) of_jobs_.Updated(job, devices);
}

void ServerMetrics::Ended(const JobId& job, Nanos now) {
  timelines_.erase(job);
  of_jobs_.Ended(job, now);
}

void ServerMetrics::Account(const JobRecord& job, const JobTimeline::Report& report) {
  for (const JobTimeline::Spent& spent : report.spent) {
    device_seconds_[static_cast<size_t>(spent.use)]->Increment(spent.device_seconds);
    if (spent.use != DeviceUse::kTraining)
      device_seconds_lost_[static_cast<size_t>(spent.cause)]->Increment(spent.device_seconds);
  }
  of_jobs_.Spent(job, report.spent);
  if (report.queue_wait.has_value()) queue_wait_->Observe(Seconds(*report.queue_wait));
  if (report.first_step.has_value()) first_step_->Observe(Seconds(*report.first_step));
  if (!report.recovered.has_value()) return;
  Nanos total;
  for (const auto& [phase, time] : *report.recovered) {
    recovery_[static_cast<size_t>(phase)]->Observe(Seconds(time));
    total += time;
  }
  recovery_total_->Observe(Seconds(total));
}

}  // namespace lynx::server
