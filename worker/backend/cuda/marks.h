// Marks: the moments of a device, as events. An event is recorded once and then, after Begin, again, so that a step of
// the same length makes none.
//
// Errors go to the stream of ops, after one of which nothing is recorded. One thread at a time. Owns the events.
#ifndef LYNX_WORKER_BACKEND_CUDA_MARKS_H_
#define LYNX_WORKER_BACKEND_CUDA_MARKS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/moment.h"
#include "common/units.h"
#include "worker/backend/cuda/stream.h"

namespace lynx::cuda {

class Marks {
 public:
  // `ops`: for errors.
  explicit Marks(Stream& ops) : ops_(ops) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Now, once the stream has nothing left to do. All marks so far are forgotten.
  Nanos Begin(cudaStream_t stream);
  // In the order of the stream.
  Moment Record(cudaStream_t stream);
  // What is issued on the stream from now on comes after the mark; nothing, for a time.
  void Follow(Moment moment, cudaStream_t stream);
  // Of a mark since Begin that has been reached. The epoch if that fails.
  Nanos TimeOf(Moment moment);

 private:
  cudaEvent_t EventOf(Moment moment) const;
  // A new event, or one of a mark that is forgotten; null after an error.
  cudaEvent_t Next();

  const RealClock clock_;
  Stream& ops_;
  std::vector<cudaEvent_t> events_;  // by mark; the first is Begin's
  int32_t used_ = 0;
  Nanos begin_;  // of the first event
};

}  // namespace lynx::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_MARKS_H_
