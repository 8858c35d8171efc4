#include "worker/engine/world_sum.h"

#include <cstring>

namespace lynx {
namespace {

constexpr int64_t kSlotFloats = sizeof(StepSums) / sizeof(float);

}  // namespace

WorldSum::WorldSum(int32_t ranks, int32_t rank) : rank_(rank), slots_(ranks * kSlotFloats) {}

absl::StatusOr<TransferTicket> WorldSum::Start(const StepSums& own, Communicator& communicator) {
  std::memcpy(&slots_[rank_ * kSlotFloats], &own, sizeof(own));
  return communicator.StartAllGather(Group::kWorld, slots_.data(), kSlotFloats);
}

StepSums WorldSum::Sums() const {
  StepSums total;
  for (size_t at = 0; at < slots_.size(); at += kSlotFloats) {
    StepSums one;
    std::memcpy(static_cast<void*>(&one), &slots_[at], sizeof(one));
    total.squared_norm += one.squared_norm;
    total.loss += one.loss;
  }
  return total;
}

}  // namespace lynx
