#include "worker/engine/world_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lynx::worker {
namespace {

constexpr int64_t kSlotFloats = sizeof(StepSums) / sizeof(float);

}  // namespace

WorldSum::WorldSum(int32_t ranks, int32_t rank) : ranks_(ranks), rank_(rank), slots_(ranks * kSlotFloats) {}

absl::StatusOr<TransferTicket> WorldSum::Start(const StepSums& own, Communicator& communicator) {
  std::memcpy(&slots_[rank_ * kSlotFloats], &own, sizeof(own));
  return communicator.StartAllGather(Group::kWorld, slots_.data(), kSlotFloats);
}

StepSums WorldSum::Of(int32_t rank) const {
  StepSums one;
  std::memcpy(static_cast<void*>(&one), &slots_[rank * kSlotFloats], sizeof(one));
  return one;
}

StepSums WorldSum::Sums() const {
  StepSums total;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const StepSums one = Of(rank);
    total.squared_norm += one.squared_norm;
    total.loss += one.loss;
    total.yields += one.yields;
    total.copies_busy += one.copies_busy;
    total.copies_failed += one.copies_failed;
    total.copies_unwanted += one.copies_unwanted;
    total.rows_routed += one.rows_routed;
    total.rows_dropped += one.rows_dropped;
    total.expert_skew = std::max(total.expert_skew, one.expert_skew);
    total.rows_in_rounds += one.rows_in_rounds;
    total.rounds += one.rounds;
    total.most_rounds = std::max(total.most_rounds, one.most_rounds);
  }
  return total;
}

int32_t WorldSum::FirstNotFinite() const {
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const StepSums one = Of(rank);
    if (!std::isfinite(one.squared_norm) || !std::isfinite(one.loss)) return rank;
  }
  return -1;
}

int32_t WorldSum::FullestRank() const {
  int32_t fullest = 0;
  for (int32_t rank = 1; rank < ranks_; ++rank) {
    if (Of(rank).expert_skew > Of(fullest).expert_skew) fullest = rank;
  }
  return fullest;
}

}  // namespace lynx::worker
