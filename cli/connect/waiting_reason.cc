#include "cli/connect/waiting_reason.h"

#include <utility>

namespace lynx::cli {

std::string WaitingReason::Due(const v1::Job& job, Nanos now) {
  const bool waits = job.state() == v1::JOB_STATE_QUEUED;
  if (waits && !waits_) {
    told_ = false;
    since_ = now;
  }
  waits_ = waits;
  if (!waits || job.reason().empty() || job.reason() == said_) return "";
  std::vector<std::string> kinds;
  for (const v1::PendingReason& reason : job.pending()) kinds.push_back(reason.kind());
  const Nanos after = !told_ ? kFirst : kinds != kinds_ ? kOther : kSame;
  if (now - since_ < after) return "";
  told_ = true;
  since_ = now;
  said_ = job.reason();
  kinds_ = std::move(kinds);
  return said_;
}

}  // namespace lynx::cli
