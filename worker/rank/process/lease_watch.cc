#include "worker/rank/process/lease_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "common/clock.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {
namespace {

constexpr std::chrono::milliseconds kLookEvery{200};

}  // namespace

LeaseWatch::LeaseWatch(LeaseFile file) : file_(std::move(file)), thread_([this] { Watch(); }) {}

LeaseWatch::~LeaseWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void LeaseWatch::Watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return stop_; })) {
    if (BootTime() < file_.Deadline()) continue;
    std::fprintf(stderr, "the lease of this node is over: it is cut off, and its work may be given to others\n");
    _exit(kRankExitLeaseOver);
  }
}

}  // namespace lynx::worker
