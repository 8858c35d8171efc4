// Marks: moments in the order of a device's work, held as CUDA events. After Begin, the events are recorded again, so a step
// with as many marks as an earlier one creates no new event.
//
// Errors go to the stream of ops; after an error nothing is recorded. One thread at a time. Owns the events.
#ifndef LYNX_WORKER_BACKEND_CUDA_MARKS_H_
#define LYNX_WORKER_BACKEND_CUDA_MARKS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/moment.h"
#include "common/units.h"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

class Marks {
 public:
  // `ops`: receives errors.
  explicit Marks(Stream& ops) : ops_(ops) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Waits until the stream has nothing left to do and returns that time. Forgets all earlier marks.
  Nanos Begin(cudaStream_t stream);
  // Adds a mark, which is reached when everything issued so far on the stream is done.
  Moment Record(cudaStream_t stream);
  // `moment` is a mark or a time. If it is a mark, work that is issued on the stream from now on runs after it. If it is a
  // time,
  // the call has no effect.
  void Follow(Moment moment, cudaStream_t stream);
  // The time of a mark since Begin. The mark must have been reached. On failure the result is the epoch.
  Nanos TimeOf(Moment moment);

 private:
  cudaEvent_t EventOf(Moment moment) const;
  // A new event, or the event of a mark that was forgotten; null after an error.
  cudaEvent_t Next();

  const RealClock clock_;
  Stream& ops_;
  std::vector<cudaEvent_t> events_;  // by mark; the first one is Begin's
  int32_t used_ = 0;
  Nanos begin_;  // time of the first event
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_MARKS_H_
