// HangWatch decides when a rank without peers hangs: it has told no progress for a limit (worker/contract/progress_file.h). It
// does not matter whether its process is stopped, waits or loops. A rank with peers is watched by them.
// Pure: it uses no clock and no files. Not thread-safe.
#ifndef LYNX_WORKER_DAEMON_HANG_WATCH_H_
#define LYNX_WORKER_DAEMON_HANG_WATCH_H_

#include <algorithm>
#include <optional>

#include "common/units.h"
#include "worker/contract/progress_file.h"

namespace lynx::worker {

class HangWatch {
 public:
  // Time between two looks counts only up to this. So if the daemon does not run for a while, because the whole machine is
  // stopped, its ranks are not taken for hanging.
  static constexpr Nanos kMaxCounted{1'000'000'000};

  // `limit`: how long a rank may be without progress, without its quiet work (RankProgress::quiet). `begin`: the time on the
  // clock of `now`.
  HangWatch(Nanos limit, Nanos begin) : limit_(limit), looked_(begin) {}

  // Takes what the rank tells at `now`. Returns true if it hangs. Before its first word the rank counts as having made no
  // progress. A rank that has told something and tells nothing any more cannot write, and does not hang for that.
  bool Hangs(const std::optional<ToldProgress>& told, Nanos now) {
    const Nanos since = std::min(now - looked_, kMaxCounted);
    looked_ = now;
    if (!told.has_value() && told_.has_value()) return false;
    still_ = told == told_ ? still_ + since : Nanos(0);
    told_ = told;
    // The quiet time comes from another process and may be any number. Adding the limit to it could overflow.
    return still_ - limit_ >= quiet();
  }
  // The time since the last look does not count: the rank may be unable to tell its progress.
  void Excuse(Nanos now) { looked_ = now; }
  // For how long the rank has told no progress.
  Nanos still() const { return still_; }

 private:
  Nanos quiet() const { return told_.has_value() ? std::max(told_->quiet, Nanos(0)) : Nanos(0); }

  const Nanos limit_;
  Nanos looked_;
  Nanos still_{0};
  std::optional<ToldProgress> told_;  // the newest
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_HANG_WATCH_H_
