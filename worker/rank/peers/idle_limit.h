// The idle limit says how long a rank waits for a peer that moves no byte, before it considers the peer lost. If a peer ends,
// its connections are closed, which its peers notice at once. The limit is for a peer that is frozen or cut off. When the
// durations of some steps are known, the limit is three times their median, and at least ten seconds, because a neighbour never
// works longer than a step. Before that the limit is long, because the first steps wait for many things. While a checkpoint is
// written or loaded, the limit is kIdleLimit plus the time that a slow disk needs for a whole checkpoint.
//
// While the limit is one of the long ones, the progress limit applies too: a peer that lives, but makes no progress for this
// time, hangs (worker/contract/rank_progress.h).
//
// A peer with a slow disk or a slow compute thread still gives signs of life. So a peer that gives no sign for kSilenceLimit
// counts as lost, whatever the idle limit is: its process is frozen, or its machine is cut off.
//
// Only the rank's compute thread may use it.
#ifndef LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
#define LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_

#include <cstddef>
#include <vector>

#include "common/units.h"
#include "worker/collectives/communicator.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {

inline constexpr Nanos kIdleLimit{600'000'000'000};  // the limit while the time of a step is not known
inline constexpr Nanos kShortestIdleLimit{10'000'000'000};
// TCP sends lost data again after 0.2, 0.6, ... 12.6 and 25.4 s. So if the network fails for twenty seconds, signs of life
// still arrive in time.
inline constexpr Nanos kSilenceLimit{30'000'000'000};

// Returns the idle limit while a checkpoint of `checkpoint` bytes is written or loaded.
constexpr Nanos CheckpointIdleLimit(Bytes checkpoint) {
  return kIdleLimit + Nanos(1'000'000'000) * (checkpoint.value / kSlowDiskPerSecond.value);
}

// Sets the idle limit and the progress limit of a communicator. They begin with kIdleLimit and `progress`; the communicator
// must have these limits already.
class IdleLimit {
 public:
  static constexpr size_t kStepsKnown = 3;  // the median is used when at least this many steps are known
  static constexpr size_t kWindow = 20;     // the median is taken over at most this many newest steps

  IdleLimit(Communicator& communicator, Nanos progress) : communicator_(communicator), progress_(progress) {}
  IdleLimit(const IdleLimit&) = delete;
  IdleLimit& operator=(const IdleLimit&) = delete;

  // Call it after each step with the step's duration.
  void RecordStep(Nanos step);
  Nanos now() const { return now_; }
  // Sets the limits for the time in which a checkpoint of `checkpoint` bytes is written or loaded.
  void BeginCheckpoint(Bytes checkpoint) const {
    communicator_.SetIdleTimeout(CheckpointIdleLimit(checkpoint));
    communicator_.SetProgressLimit(progress_);
  }
  // Sets the limits for all other times.
  void EndCheckpoint() const {
    communicator_.SetIdleTimeout(now_);
    communicator_.SetProgressLimit(knows_steps() ? Nanos(0) : progress_);
  }

 private:
  bool knows_steps() const { return steps_.size() >= kStepsKnown; }

  Communicator& communicator_;
  const Nanos progress_;
  std::vector<Nanos> steps_;  // ring buffer with the times of the newest steps
  size_t next_ = 0;           // index of the next entry in the ring buffer
  Nanos now_ = kIdleLimit;
};

// While this object exists, the limits are those for a checkpoint of `checkpoint` bytes.
class CheckpointPatience {
 public:
  CheckpointPatience(const IdleLimit& limit, Bytes checkpoint) : limit_(limit) { limit_.BeginCheckpoint(checkpoint); }
  ~CheckpointPatience() { limit_.EndCheckpoint(); }
  CheckpointPatience(const CheckpointPatience&) = delete;
  CheckpointPatience& operator=(const CheckpointPatience&) = delete;

 private:
  const IdleLimit& limit_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
