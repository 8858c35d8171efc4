#include "worker/engine/device_sums.h"

#include <span>

#include "common/status.h"

namespace lynx::worker {

absl::StatusOr<DeviceSums> DeviceSums::Create(Backend& backend) {
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend.Allocate(Bytes(sizeof(StepSums)), "a step's sums"));
  return DeviceSums(reinterpret_cast<StepSums*>(memory.data()), backend);
}

void DeviceSums::Clear() { backend_->Fill(reinterpret_cast<float*>(sums_), sizeof(StepSums) / sizeof(float), 0); }

absl::StatusOr<StepSums> DeviceSums::Fetch() const {
  StepSums sums;
  backend_->Copy(sums_, Bytes(sizeof(sums)), &sums);
  LYNX_RETURN_IF_ERROR(backend_->Finish());
  return sums;
}

}  // namespace lynx::worker
