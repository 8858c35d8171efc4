#include "worker/rank/process/progress_signs.h"

#include <chrono>
#include <utility>

#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

constexpr std::chrono::seconds kTellEvery{1};

}  // namespace

ProgressSigns::ProgressSigns(ProgressFile file) : file_(std::move(file)), thread_([this] { Run(); }) {}

ProgressSigns::~ProgressSigns() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ProgressSigns::Run() {
  const RankProgress& own = OwnProgress();
  std::unique_lock lock(mutex_);
  do {
    const Nanos quiet = own.quiet();  // before made()
    file_.Tell({.made = own.made(), .quiet = quiet});
  } while (!changed_.wait_for(lock, kTellEvery, [this] { return stop_; }));
}

}  // namespace lynx::worker
