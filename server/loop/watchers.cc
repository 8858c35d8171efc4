// See watchers.h.
#include "server/loop/watchers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/wire/messages.h"

namespace lynx::server {
namespace {

constexpr Nanos kBetweenProgress{50'000'000};  // at most 20 messages per second

}  // namespace

absl::Status Watchers::Add(const JobId& job, const std::string& who, std::shared_ptr<WatchStream> stream) {
  if (count_ >= kMost) {
    return absl::ResourceExhaustedError(absl::StrCat("the server has ", count_, " watchers, its limit; use GetJob"));
  }
  size_t own = 0;
  for (const auto& [id, watched] : jobs_) {
    for (const Watcher& watcher : watched.watchers) own += watcher.who == who ? 1 : 0;
  }
  if (!who.empty() && own >= kMaxOfOne) {
    return absl::ResourceExhaustedError(absl::StrCat(who, " has ", own, " watchers, the limit of one caller; use GetJob"));
  }
  ++count_;
  jobs_[job].watchers.push_back({who, std::move(stream)});
  return absl::OkStatus();
}

void Watchers::Remove(const JobId& job, const WatchStream* stream) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  count_ -= std::erase_if(found->second.watchers, [&](const Watcher& other) { return other.stream.get() == stream; });
  if (found->second.watchers.empty()) jobs_.erase(found);
}

void Watchers::Close(const JobId& job, const absl::Status& status) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  for (const Watcher& watcher : found->second.watchers) watcher.stream->Close(status);
  count_ -= found->second.watchers.size();
  jobs_.erase(found);
}

void Watchers::CloseAll(const absl::Status& status) {
  for (auto& [job, watched] : jobs_) {
    for (const Watcher& watcher : watched.watchers) watcher.stream->Close(status);
  }
  jobs_.clear();
  count_ = 0;
}

void Watchers::Changed(const JobId& job, bool final, const std::vector<JobEvent>& events, Nanos now, const EncodeJob& encode) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  Watched& watched = found->second;
  if (events.empty() && !final && now - watched.sent < kBetweenProgress) {
    watched.held_back = true;
    return;
  }
  v1::WatchJobResponse response;
  *response.mutable_job() = encode(job);
  for (const JobEvent& event : events) *response.add_events() = Encode(event);
  Send(watched, response, final, now);
  if (!final) return;
  count_ -= watched.watchers.size();
  jobs_.erase(found);
}

void Watchers::Tick(Nanos now, const EncodeJob& encode) {
  for (auto& [job, watched] : jobs_) {
    if (!watched.held_back) continue;
    v1::WatchJobResponse response;
    *response.mutable_job() = encode(job);
    Send(watched, response, false, now);
  }
}

void Watchers::Send(Watched& watched, const v1::WatchJobResponse& response, bool last, Nanos now) {
  watched.sent = now;
  watched.held_back = false;
  for (const Watcher& watcher : watched.watchers) watcher.stream->Send(response, last);
}

}  // namespace lynx::server
