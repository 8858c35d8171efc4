// The idle limit: how long a rank waits for a peer that moves no byte before it considers the peer lost. A peer that dies
// closes its connections, which is noticed at once; the limit is for a peer that is frozen or cut off. When some steps have
// shown how long a step takes, the limit is three times that, and at least ten seconds: a neighbour never works longer than a
// step. Before that the limit is long, because first steps wait for many things. While checkpoints are written or loaded, it is
// extended by the time that a slow disk needs for a whole checkpoint.
//
// A peer whose disk or compute thread is slow still gives signs of life. So, whatever the idle limit is, a peer counts as lost
// after kSilenceLimit without a sign: its process is frozen, or its machine is cut off.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
#define LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_

#include <cstddef>
#include <vector>

#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

inline constexpr Nanos kIdleLimit{600'000'000'000};  // before the time of a step is known
inline constexpr Nanos kShortestIdleLimit{10'000'000'000};
// TCP retransmits lost data after 0.2, 0.6, ... 12.6 and 25.4 s, so after a cut of twenty seconds the signs still arrive in
// time.
inline constexpr Nanos kSilenceLimit{30'000'000'000};
// The rate at which a slow disk writes a checkpoint and reads it back.
inline constexpr Bytes kSlowDiskPerSecond = kMiB * 32;

// The idle limit while a checkpoint of `checkpoint` bytes is written or loaded.
constexpr Nanos CheckpointIdleLimit(Bytes checkpoint) {
  return kIdleLimit + Nanos(1'000'000'000) * (checkpoint.value / kSlowDiskPerSecond.value);
}

// Sets the idle limit of a communicator. At first the limit is kIdleLimit; the communicator must have this limit already.
class IdleLimit {
 public:
  static constexpr size_t kStepsKnown = 3;  // the median counts from this number of steps on
  static constexpr size_t kWindow = 20;     // the median is over this number of the newest steps

  explicit IdleLimit(Communicator& communicator) : communicator_(communicator) {}
  IdleLimit(const IdleLimit&) = delete;
  IdleLimit& operator=(const IdleLimit&) = delete;

  // Call it after each step with the step's duration.
  void RecordStep(Nanos step);
  Nanos now() const { return now_; }
  void Set(Nanos limit) const { communicator_.SetIdleTimeout(limit); }

 private:
  Communicator& communicator_;
  std::vector<Nanos> steps_;  // ring of the newest steps
  size_t next_ = 0;           // index in the ring
  Nanos now_ = kIdleLimit;
};

// While this object exists, the idle limit is the one for a checkpoint of `checkpoint` bytes.
class CheckpointPatience {
 public:
  CheckpointPatience(const IdleLimit& limit, Bytes checkpoint) : limit_(limit) { limit_.Set(CheckpointIdleLimit(checkpoint)); }
  ~CheckpointPatience() { limit_.Set(limit_.now()); }
  CheckpointPatience(const CheckpointPatience&) = delete;
  CheckpointPatience& operator=(const CheckpointPatience&) = delete;

 private:
  const IdleLimit& limit_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
