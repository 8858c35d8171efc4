#include "worker/engine/device_sums.h"

#include <cstring>

#include "common/status.h"

namespace lynx::worker {

static_assert(sizeof(StepSums) % sizeof(int64_t) == 0);  // so the counters after it are aligned

absl::StatusOr<DeviceSums> DeviceSums::Create(int64_t counters, Backend& backend) {
  const Bytes bytes(static_cast<int64_t>(sizeof(StepSums)) + counters * static_cast<int64_t>(sizeof(int64_t)));
  LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend.Allocate(bytes, "a step's sums"));
  return DeviceSums(memory, backend);
}

// All bits of a zero are 0, in floats and in integers.
void DeviceSums::Clear() { backend_->Fill(memory_.data(), static_cast<int64_t>(memory_.size()), 0); }

absl::StatusOr<StepSums> DeviceSums::Fetch() {
  backend_->Copy(memory_.data(), Bytes(static_cast<int64_t>(fetched_.size())), fetched_.data());
  LYNX_RETURN_IF_ERROR(backend_->Finish());
  StepSums sums;
  std::memcpy(static_cast<void*>(&sums), fetched_.data(), sizeof(sums));
  return sums;
}

std::span<const int64_t> DeviceSums::counters() const {
  return {reinterpret_cast<const int64_t*>(fetched_.data() + sizeof(StepSums)),
          (fetched_.size() - sizeof(StepSums)) / sizeof(int64_t)};
}

}  // namespace lynx::worker
