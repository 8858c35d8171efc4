// See call_limits.h.
#include "server/access/call_limits.h"

#include "absl/strings/str_cat.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

constexpr Nanos kShedDelay{1'000'000'000};

}  // namespace

absl::Status CallLimits::Take(Cost cost, CallerKey key, const std::string& caller, Nanos now) {
  const Rate rate = cost == Cost::kChange ? options_.changes : options_.reads;
  if (cost == Cost::kNothing || rate.per_second <= 0) return absl::OkStatus();
  const std::string kind = cost == Cost::kChange ? "changes" : "reads";
  const std::lock_guard lock(mutex_);
  std::map<std::string, TokenBucket>& buckets = buckets_[static_cast<size_t>(key)];
  std::string name = absl::StrCat(kind, " ", caller);
  if (!buckets.contains(name) && buckets.size() >= kMaxCallers) {
    std::erase_if(buckets, [&](const auto& entry) { return entry.second.Full(now); });
    if (buckets.size() >= kMaxCallers) name = kind;
  }
  const Nanos wait = buckets.try_emplace(name, rate, now).first->second.Take(now);
  if (wait == Nanos(0)) return absl::OkStatus();
  return RetryLater(absl::StrCat(caller.empty() ? "this address" : caller, " asks for more than ", rate.per_second, " ", kind,
                                 " a second (", rate.burst, " at once); try again in ", FormatDuration(wait)),
                    wait);
}

absl::Status CallLimits::CheckQueue(size_t queue) const {
  if (queue <= options_.shed_above) return absl::OkStatus();
  return RetryLater(absl::StrCat("the server is behind with ", queue, " events, and hears nodes first; try again in a moment"),
                    kShedDelay);
}

}  // namespace lynx::server
