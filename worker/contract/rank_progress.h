// RankProgress says how far a rank's process has come: whether it does something, or only lives. A rank tells its peers with
// its signs of life (worker/collectives/wire.h), so they notice a rank that hangs although its process lives.
//
// Thread-safe.
#ifndef LYNX_WORKER_CONTRACT_RANK_PROGRESS_H_
#define LYNX_WORKER_CONTRACT_RANK_PROGRESS_H_

#include <atomic>
#include <cstdint>

#include "common/units.h"

namespace lynx {

class RankProgress {
 public:
  // Call it when a piece of work is done: an action of a step, a part of a file, a transfer.
  void Made() { made_.fetch_add(1, std::memory_order_relaxed); }

  int64_t made() const { return made_.load(std::memory_order_relaxed); }
  // How long the work that is under way may take without a call of Made, in addition to the usual limit. To be read before
  // made(): whoever sees that the work has ended then also sees that it made progress.
  Nanos quiet() const { return Nanos(quiet_ns_.load(std::memory_order_acquire)); }

 private:
  friend class QuietWork;
  std::atomic<int64_t> made_{0};
  std::atomic<int64_t> quiet_ns_{0};
};

// The progress of this process. A rank is a process; ranks that tests run as threads share it.
inline RankProgress& OwnProgress() {
  static RankProgress progress;
  return progress;
}

// While this object exists, work is under way that shows no progress by its nature, for at most `most`.
class QuietWork {
 public:
  explicit QuietWork(Nanos most, RankProgress& progress = OwnProgress()) : progress_(progress), most_(most) {
    progress_.quiet_ns_.fetch_add(most_.value, std::memory_order_relaxed);
  }
  ~QuietWork() {
    progress_.Made();
    progress_.quiet_ns_.fetch_sub(most_.value, std::memory_order_release);
  }
  QuietWork(const QuietWork&) = delete;
  QuietWork& operator=(const QuietWork&) = delete;

 private:
  RankProgress& progress_;
  const Nanos most_;
};

// The rate at which a slow disk writes a checkpoint and reads it back.
inline constexpr Bytes kSlowDiskPerSecond = kMiB * 32;
// The rate at which a slow processor makes or copies states in memory.
inline constexpr Bytes kSlowMemoryPerSecond = kMiB * 256;
constexpr Nanos TimeFor(Bytes bytes, Bytes per_second) {
  return Nanos(1'000'000'000 / (per_second.value / kMiB.value) * (bytes.value / kMiB.value));
}

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_PROGRESS_H_
