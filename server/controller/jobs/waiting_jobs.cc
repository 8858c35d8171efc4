#include "server/controller/jobs/waiting_jobs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lynx::server {
namespace {

std::pair<int32_t, int64_t> KeyOf(const JobRecord& record) { return {-record.spec->scheduling.priority, record.submission}; }

}  // namespace

void WaitingJobs::SetReady(LiveJob& job) {
  const JobRecord& record = job.record;
  auto& line = ready_[record.spec->scheduling.queue];
  line.erase(KeyOf(record));
  const bool ready =
      queue_.contains(record.submission) && (!record.held || options_.Makes(Mistake::kForgetHolds)) && record.waits_for.empty();
  if (ready) line.insert(KeyOf(record));
  if (line.empty()) ready_.erase(record.spec->scheduling.queue);
}

void WaitingJobs::Enqueue(LiveJob& job) {
  job.memory.is_short = false;
  queue_.insert(job.record.submission);
  jobs_.SetActive(job.record.id, false);
  if (!job.record.waits_for.empty()) dependents_.insert(job.record.id);
  job.queue.line_until = job.record.generation == Generation(0) ? Nanos(0) : step_.now() + options_.return_timeout;
  if (job.queue.line_until != Nanos(0)) in_line_.insert(job.record.id);
  SetReady(job);
  job.record.pending = WhyNotReady(job);
  step_.LookAtQueue();
}

void WaitingJobs::Dequeue(LiveJob& job) {
  queue_.erase(job.record.submission);
  jobs_.SetActive(job.record.id, true);
  dependents_.erase(job.record.id);
  SetReady(job);
  job.queue.structural = job.queue.over_quota = false;
  job.queue.line_until = Nanos(0);
  in_line_.erase(job.record.id);
  if (favoured_ == job.record.id) favoured_ = JobId();
  job.record.pending.clear();
  job.record.expected_start = Nanos(0);
}

void WaitingJobs::LeaveLine() {
  std::erase_if(in_line_, [&](const JobId& id) {
    LiveJob& job = jobs_.At(id);
    if (step_.now() < job.queue.line_until) return false;
    job.queue.line_until = Nanos(0);
    if (job.queue.structural) step_.LookAtQueue();
    return true;
  });
}

bool WaitingJobs::SomeoneIsBefore(const LiveJob& job) const {
  return std::any_of(ready_.begin(), ready_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [&](const auto& key) {
      const LiveJob& other = jobs_.OfSubmission(key.second);
      return key < KeyOf(job.record) && !other.queue.structural && !other.queue.over_quota;
    });
  });
}

bool WaitingJobs::SomeoneWaits() const {
  return std::any_of(ready_.begin(), ready_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(), [&](const auto& key) {
      const LiveJob& other = jobs_.OfSubmission(key.second);
      return !other.queue.structural && !other.queue.over_quota;
    });
  });
}

std::vector<PendingReason> WaitingJobs::WhyNotReady(const LiveJob& job) const {
  const JobRecord& record = job.record;
  std::vector<PendingReason> reasons;
  if (record.held) reasons.push_back({"held", absl::StrCat("is held; 'lynxctl release ", record.id.value, "' lets it begin")});
  if (!record.waits_for.empty()) {
    std::vector<std::string> names;
    for (const JobId& id : record.waits_for) {
      if (jobs_.Contains(id)) names.push_back(NameText(jobs_.At(id)));
    }
    reasons.push_back({"dependency", absl::StrCat("begins after ", absl::StrJoin(names, ", "), " has succeeded")});
  }
  return reasons;
}

void WaitingJobs::SetPending(LiveJob& job, std::vector<PendingReason> pending) {
  std::vector<std::string> texts;
  for (const PendingReason& reason : pending) texts.push_back(reason.text);
  job.record.pending = std::move(pending);
  const std::string reason = absl::StrJoin(texts, "; ");
  if (reason.empty() || job.record.reason == reason) return;
  job.record.reason = reason;
  step_.Notify(job.record.id);
}

}  // namespace lynx::server
