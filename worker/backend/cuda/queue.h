// Queue is a stream for transfers, which runs at the same time as the stream of the ops. If both need the device's
// multiprocessors, the queue has priority, because a transfer uses few of them and other ranks wait for it.
#ifndef LYNX_WORKER_BACKEND_CUDA_QUEUE_H_
#define LYNX_WORKER_BACKEND_CUDA_QUEUE_H_

#include <cuda_runtime.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/cuda/marks.h"
#include "worker/backend/cuda/stream.h"
#include "worker/backend/device_queue.h"

namespace lynx::worker::cuda {

class Queue : public DeviceQueue {
 public:
  // Makes a queue on the device of `ops`. The stream `ops` also receives the queue's errors. Borrows both arguments.
  static absl::StatusOr<std::unique_ptr<DeviceQueue>> Create(Stream& ops, Marks& marks);
  ~Queue() override;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Follow(Moment moment) override { marks_.Follow(moment, handle_); }
  Moment Mark() override { return marks_.Record(handle_); }
  void Copy(const void* from, Bytes bytes, void* to) override;
  void* native() override { return handle_; }

 private:
  Queue(Stream& ops, Marks& marks) : ops_(ops), marks_(marks) {}

  Stream& ops_;
  Marks& marks_;
  cudaStream_t handle_ = nullptr;
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_QUEUE_H_
