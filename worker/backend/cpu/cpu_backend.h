// CpuBackend is the Backend on the cores of one machine. Its ops are those of cpu_ops.h.
//
// The order of every sum depends only on the shapes, the number of BLAS threads and the machine's instruction set, never on
// addresses. So one machine repeats its bits, and machines of different kinds agree up to rounding. Only one thread at a time
// may use an object. The object owns the memory that it allocated. The number of BLAS threads is a setting of the whole
// process: the last call of MakeCpuBackend sets it.
#ifndef LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_ops.h"

namespace lynx::worker::cpu {

class CpuBackend : public CpuOps<float> {
 public:
  CpuBackend() = default;
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;
  ~CpuBackend() override;

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
  absl::StatusOr<std::span<float>> AllocatePinned(Bytes bytes, const std::string& what) override {
    return Allocate(bytes, what);
  }
  bool host_addressable() const override { return true; }
  absl::Status Finish() override { return absl::OkStatus(); }
  Moment Mark() override { return clock_.Monotonic(); }
  void Follow(Moment) override {}
  Nanos BeginMarks() override { return clock_.Monotonic(); }
  Nanos TimeOf(Moment moment) override { return moment.time; }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> MakeQueue() override;
  std::string Name() const override;

 private:
  struct Mapping {
    void* address;
    size_t bytes;
  };
  const RealClock clock_;
  CpuOps<Bfloat16> bfloat16_;
  std::vector<Mapping> mappings_;
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_
