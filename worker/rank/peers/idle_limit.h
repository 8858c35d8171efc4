// The idle limit: how long a rank waits for a peer that moves no byte before it takes it for lost. A peer that dies
// closes its connections, which is noticed at once; this is for one that is frozen or cut off. Once some steps have
// shown how long one takes, it is three of these and at least ten seconds: a neighbour's work is no longer than a
// step. Before that it is long, since first steps wait for much, and while checkpoints are written or loaded it is
// longer by the time that a slow disk takes for all of one.
//
// A peer of which only the disk or the compute thread is slow gives signs of life all the while. So whatever the idle
// limit, one whose process is frozen, or its machine cut off, is lost after kSilenceLimit without any.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
#define LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_

#include <cstddef>
#include <vector>

#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx {

inline constexpr Nanos kIdleLimit{600'000'000'000};  // before the steps are known
inline constexpr Nanos kShortestIdleLimit{10'000'000'000};
// TCP sends again what is lost after 0.2, 0.6, ... 12.6 and 25.4 s: after a cut of twenty seconds the signs arrive in time.
inline constexpr Nanos kSilenceLimit{30'000'000'000};
// Of a disk that is written and read back.
inline constexpr Bytes kSlowDiskPerSecond = kMiB * 32;

// With a checkpoint of so many bytes under way.
constexpr Nanos CheckpointIdleLimit(Bytes checkpoint) {
  return kIdleLimit + Nanos(1'000'000'000) * (checkpoint.value / kSlowDiskPerSecond.value);
}

// Of a communicator, for which it sets the limit. It begins with kIdleLimit, which the communicator has already.
class IdleLimit {
 public:
  static constexpr size_t kStepsKnown = 3;  // steps before their median counts
  static constexpr size_t kWindow = 20;     // newest steps that the median is over

  explicit IdleLimit(Communicator& communicator) : communicator_(communicator) {}
  IdleLimit(const IdleLimit&) = delete;
  IdleLimit& operator=(const IdleLimit&) = delete;

  // After each step.
  void Took(Nanos step);
  Nanos now() const { return now_; }
  void Set(Nanos limit) const { communicator_.SetIdleTimeout(limit); }

 private:
  Communicator& communicator_;
  std::vector<Nanos> steps_;  // a ring of the newest
  size_t next_ = 0;           // place in it
  Nanos now_ = kIdleLimit;
};

// While it lives, the limit is that of a checkpoint of so many bytes.
class CheckpointPatience {
 public:
  CheckpointPatience(const IdleLimit& limit, Bytes checkpoint) : limit_(limit) { limit_.Set(CheckpointIdleLimit(checkpoint)); }
  ~CheckpointPatience() { limit_.Set(limit_.now()); }
  CheckpointPatience(const CheckpointPatience&) = delete;
  CheckpointPatience& operator=(const CheckpointPatience&) = delete;

 private:
  const IdleLimit& limit_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_IDLE_LIMIT_H_
