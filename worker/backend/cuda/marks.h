// A mark is a point in the work of a device. Marks records each mark as a CUDA event. Begin forgets the marks, but keeps their
// events for the next marks. So a step creates no new event if an earlier step had as many marks.
//
// Errors are noted in the Stream object of the ops. After an error nothing is recorded. Use an object from one thread at a
// time. Owns the events.
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
  // `ops`: the stream that receives errors.
  explicit Marks(Stream& ops) : ops_(ops) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Waits until the stream has no work left, and returns that time. Forgets all earlier marks.
  Nanos Begin(cudaStream_t stream);
  // Adds a mark. It is reached when all work that was issued on the stream before is done.
  Moment Record(cudaStream_t stream);
  // If `moment` is a mark, work that is issued on the stream from now on runs after it. If `moment` is a time, the call has no
  // effect.
  void Follow(Moment moment, cudaStream_t stream);
  // Returns the time of a mark that was recorded after the last Begin. The mark must have been reached. If `moment` is a time,
  // returns that time. Returns 0 after a failure.
  Nanos TimeOf(Moment moment);

 private:
  cudaEvent_t EventOf(Moment moment) const;
  // Returns a new event, or the event of a forgotten mark; null after an error.
  cudaEvent_t Next();

  const RealClock clock_;
  Stream& ops_;
  std::vector<cudaEvent_t> events_;  // one for each mark; Begin records the first one
  int32_t used_ = 0;
  Nanos begin_;  // the time of the first event
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_MARKS_H_
