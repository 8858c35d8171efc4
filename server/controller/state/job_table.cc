#include "server/controller/state/job_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/values/access.h"

namespace lynx::server {

LiveJob& JobTable::Add(JobRecord record, Nanos wall) {
  const JobId id = record.id;
  const auto [at, is_new] = jobs_.try_emplace(id);
  LYNX_CHECK(is_new && !by_submission_.contains(record.submission));
  LiveJob& job = at->second;
  job.record = std::move(record);
  by_key_[job.record.idempotency_key] = id;
  by_submission_[job.record.submission] = id;
  last_submission_ = std::max(last_submission_, job.record.submission);
  if (IsFinal(job.record.state)) {
    ended_.insert({job.record.ended, job.record.submission});
  } else {
    unfinished_.insert(id);
    for (const NodeId& node : job.record.excluded) excluded_by_[node][id] = wall;
  }
  return job;
}

void JobTable::Remove(const JobId& id) {
  const JobRecord& record = jobs_.at(id).record;
  by_key_.erase(record.idempotency_key);
  by_submission_.erase(record.submission);
  ended_.erase({record.ended, record.submission});
  unfinished_.erase(id);
  active_.erase(id);
  jobs_.erase(id);
}

std::vector<JobId> JobTable::DropOldest(size_t kept) {
  std::vector<JobId> dropped;
  while (ended_.size() > kept) {
    dropped.push_back(by_submission_.at(ended_.begin()->second));
    Remove(dropped.back());
  }
  return dropped;
}

void JobTable::MarkEnded(const LiveJob& job) {
  const JobRecord& record = job.record;
  unfinished_.erase(record.id);
  active_.erase(record.id);
  for (const NodeId& node : record.excluded) {
    const auto jobs = excluded_by_.find(node);
    if (jobs != excluded_by_.end() && jobs->second.erase(record.id) > 0 && jobs->second.empty()) excluded_by_.erase(jobs);
  }
  ended_.insert({record.ended, record.submission});
}

void JobTable::SetActive(const JobId& id, bool active) { active ? void(active_.insert(id)) : void(active_.erase(id)); }

void JobTable::Exclude(LiveJob& job, const NodeId& node, Nanos wall) {
  job.record.excluded.push_back(node);
  excluded_by_[node][job.record.id] = wall;
}

LiveJob* JobTable::Find(const JobId& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

const LiveJob* JobTable::Find(const JobId& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

const LiveJob* JobTable::WithKey(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &jobs_.at(found->second);
}

const std::map<JobId, Nanos>* JobTable::ExcludedBy(const NodeId& node) const {
  const auto found = excluded_by_.find(node);
  return found == excluded_by_.end() ? nullptr : &found->second;
}

absl::StatusOr<JobId> JobTable::Resolve(const std::string& text, const std::string& asker) const {
  if (jobs_.contains(JobId(text))) return JobId(text);
  const bool has_jobs_of_its_own = !asker.empty() && asker != kLocalUser;
  const JobId* newest = nullptr;
  for (auto it = by_submission_.rbegin(); it != by_submission_.rend(); ++it) {
    const JobRecord& record = jobs_.at(it->second).record;
    if (record.spec->name != text) continue;
    if (!has_jobs_of_its_own || record.owner == asker) return it->second;
    if (newest == nullptr) newest = &it->second;
  }
  if (newest != nullptr) return *newest;
  const auto begins = [&](const JobId& id) { return !text.empty() && id.value.compare(0, text.size(), text) == 0; };
  const auto first = jobs_.lower_bound(JobId(text));
  if (first == jobs_.end() || !begins(first->first)) {
    return absl::NotFoundError(absl::StrCat("no job has the id or name \"", text.substr(0, 80), "\""));
  }
  if (const auto second = std::next(first); second != jobs_.end() && begins(second->first)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" begins the ids of several jobs, among them ",
                                                   first->first.value, " and ", second->first.value, "; give more characters"));
  }
  return first->first;
}

std::vector<const JobRecord*> JobTable::List(size_t limit, const std::vector<JobState>& states, const JobRecord* before,
                                             const std::string& owner) const {
  std::vector<const JobRecord*> records;
  const int64_t end = before == nullptr ? std::numeric_limits<int64_t>::max() : before->submission;
  const auto of_owner = [&](const JobRecord& record) { return owner.empty() || record.owner == owner; };
  // If only unfinished states are wanted, looks only at the unfinished jobs. They are few compared with the ended jobs.
  if (!states.empty() && std::none_of(states.begin(), states.end(), IsFinal)) {
    for (const JobId& id : unfinished_) {
      const JobRecord& record = jobs_.at(id).record;
      const bool wanted = record.submission < end && std::find(states.begin(), states.end(), record.state) != states.end();
      if (wanted && of_owner(record)) records.push_back(&record);
    }
    std::sort(records.begin(), records.end(),
              [](const JobRecord* a, const JobRecord* b) { return a->submission > b->submission; });
    records.resize(std::min(records.size(), limit));
    return records;
  }
  for (auto it = std::make_reverse_iterator(by_submission_.lower_bound(end));
       it != by_submission_.rend() && records.size() < limit; ++it) {
    const JobRecord& record = jobs_.at(it->second).record;
    const bool wanted = states.empty() || std::find(states.begin(), states.end(), record.state) != states.end();
    if (wanted && of_owner(record)) records.push_back(&record);
  }
  return records;
}

}  // namespace lynx::server
