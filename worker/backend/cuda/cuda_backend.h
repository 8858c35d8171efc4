// CudaBackend is the Backend on one NVIDIA GPU. Its ops are those of cuda_ops.h.
//
// Ops are issued on one stream and run in that order. A call returns before its op is done. Pointers must point to memory that
// the device can read: memory that Allocate returned, or pinned memory. On one GPU with one version of cuBLASLt, the same ops
// give the same bits. GPUs of different kinds agree up to rounding. In addition to the allocated memory, the backend holds
// Stream::kScratch.
//
// Only one thread at a time may use an object, and the device must be set on this thread. The object owns the memory that it
// allocated.
#ifndef LYNX_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
#define LYNX_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/gemm.h"
#include "worker/backend/cuda/marks.h"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

// The parts that are made before the ops and live longer than the ops.
struct DeviceParts {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Gemm> gemm;
};

class CudaBackend : private DeviceParts, public CudaOps<float> {
 public:
  CudaBackend(DeviceParts parts, std::string name);
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override;

  LayerBackend<Bfloat16>& bfloat16() override { return bfloat16_; }
  void LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                 float* stats) override;
  void LossForward(const float* stats, int64_t t, int64_t n, double* sum) override;
  void CountRows(const ExpertShape& shape, const float* weights, int64_t* by_expert, int64_t* total) override;
  void CountChoices(const RouteChoice* route, int64_t choices, int64_t experts, float* loads) override;
  void MoveRouterBias(const float* loads, int64_t experts, double even, float rate, float* bias) override;
  void MostWithoutRoom(const RouteChoice* route, int64_t choices, int32_t* most) override;
  void RouteOfRound(const RouteChoice* route, int64_t choices, int64_t room, int64_t round, RouteChoice* of_round) override;
  void WeightGradientsOfChoices(const RouteChoice* route, int64_t choices, const float* dweights, float* late) override;
  void SumOfSquares(std::span<const std::span<const float>> tensors, double* sum) override;
  void AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) override;
  void Round(const float* from, int64_t count, Bfloat16* to) override;
  void Fill(float* x, int64_t count, float value) override;
  int64_t WordsUnlike(float mark, const float* x, int64_t count) override;
  void Copy(const void* from, Bytes bytes, void* to) override;
  absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) override;
  void Release(std::span<float> memory) override;
  absl::StatusOr<Bytes> FreeMemory() const override;
  absl::StatusOr<std::span<float>> AllocatePinned(Bytes bytes, const std::string& what) override;
  bool host_addressable() const override { return false; }
  absl::Status Finish() override { return stream_.Synchronize(); }
  Moment Mark() override { return marks_.Record(stream_.handle()); }
  void Follow(Moment moment) override { marks_.Follow(moment, stream_.handle()); }
  Nanos BeginMarks() override { return marks_.Begin(stream_.handle()); }
  Nanos TimeOf(Moment moment) override { return marks_.TimeOf(moment); }
  void BeginRange(const char* name) override;
  void EndRange() override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> MakeQueue() override;
  std::string Name() const override { return name_; }

 private:
  // Waits for the value on the device and returns it. If an earlier op has failed, returns `failed`.
  template <class T>
  T Fetch(const T* value, T failed);

  CudaOps<Bfloat16> bfloat16_;
  Marks marks_;
  std::vector<void*> allocations_, pinned_;
  const std::string name_;
};

template <class T>
T CudaBackend::Fetch(const T* value, T failed) {
  T fetched = failed;
  // Avoids a copy by CUDA itself: after an error the device could write later, into the stack of another function.
  stream_.Copy(value, Bytes(sizeof(T)), &fetched);
  return stream_.ok() ? fetched : failed;
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_CUDA_BACKEND_H_
