#include "worker/backend/cuda/queue.h"

#include "common/status.h"

namespace lynx::worker::cuda {

absl::StatusOr<std::unique_ptr<DeviceQueue>> Queue::Create(Stream& ops, Marks& marks) {
  std::unique_ptr<Queue> queue(new Queue(ops, marks));
  int lowest = 0, highest = 0;
  LYNX_RETURN_IF_ERROR(StatusOf(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities"));
  LYNX_RETURN_IF_ERROR(StatusOf(cudaStreamCreateWithPriority(&queue->handle_, cudaStreamNonBlocking, highest),
                                "creating a stream of transfers"));
  return std::unique_ptr<DeviceQueue>(std::move(queue));
}

Queue::~Queue() {
  if (handle_ == nullptr) return;
  cudaStreamSynchronize(handle_);
  cudaStreamDestroy(handle_);
}

void Queue::Copy(const void* from, Bytes bytes, void* to) {
  if (!ops_.ok()) return;
  ops_.Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes.value), cudaMemcpyDefault, handle_), "a copy");
}

}  // namespace lynx::worker::cuda
