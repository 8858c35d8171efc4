// The idle limit: how long a rank waits for a peer that moves no byte before it takes it for lost. A peer that dies
// closes its connections, which is noticed at once; this is for one that is frozen or cut off, and longer than any
// wait for a neighbour's work. While checkpoints are written or loaded it is longer by the time that a slow disk
// takes for all of one. Owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_IDLE_LIMIT_H_
#define LYNX_WORKER_RANK_IDLE_LIMIT_H_

#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx {

inline constexpr Nanos kIdleLimit{600'000'000'000};
// Of a disk that is written and read back.
inline constexpr Bytes kSlowDiskPerSecond = kMiB * 32;

// With a checkpoint of so many bytes under way.
constexpr Nanos CheckpointIdleLimit(Bytes checkpoint) {
  return kIdleLimit + Nanos(1'000'000'000) * (checkpoint.value / kSlowDiskPerSecond.value);
}

// While it lives, the communicator has the limit of a checkpoint of so many bytes.
class CheckpointPatience {
 public:
  CheckpointPatience(Communicator& communicator, Bytes checkpoint) : communicator_(communicator) {
    communicator_.SetIdleTimeout(CheckpointIdleLimit(checkpoint));
  }
  ~CheckpointPatience() { communicator_.SetIdleTimeout(kIdleLimit); }
  CheckpointPatience(const CheckpointPatience&) = delete;
  CheckpointPatience& operator=(const CheckpointPatience&) = delete;

 private:
  Communicator& communicator_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_IDLE_LIMIT_H_
