// Agreement: every rank tells every other rank its status, or a value or text. So all ranks know the same and continue in the
// same way. Collective; owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_PEERS_AGREEMENT_H_
#define LYNX_WORKER_RANK_PEERS_AGREEMENT_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

// Longer messages are cut.
inline constexpr int kAgreementMessageBytes = 504;

// One rank's access to an exchange among all ranks.
struct RankGroup {
  int32_t rank = 0;
  int32_t ranks = 1;
  Communicator& communicator;
};

// The statuses of all ranks, by rank, on every rank. No rank returns before every rank has called. The only errors are the
// communicator's.
absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, const RankGroup& seat);

// The texts of all ranks, by rank, on every rank; they may have any length. Otherwise like GatherStatuses.
absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& own, const RankGroup& seat);

// OK if all statuses are OK. Otherwise the code of the first rank that failed, with "rank N: " before its message.
absl::Status FirstFailure(const std::vector<absl::Status>& statuses);

// Gathers one slot of every rank. `slots` has room for `slot_floats` floats of every rank. This rank's slot must be filled; the
// other slots are received.
absl::Status GatherSlots(std::vector<float>& slots, int64_t slot_floats, const RankGroup& seat);

// Returns the values of all ranks, by rank, on every rank. Otherwise like GatherStatuses. T is plain bytes, and its size is a
// multiple of four.
template <class T>
absl::StatusOr<std::vector<T>> GatherValues(const T& own, const RankGroup& seat) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(float) == 0);
  constexpr int64_t kSlotFloats = sizeof(T) / sizeof(float);
  std::vector<float> slots(seat.ranks * kSlotFloats);  // bit patterns: the gather only moves them
  std::memcpy(&slots[seat.rank * kSlotFloats], &own, sizeof(T));
  if (absl::Status status = GatherSlots(slots, kSlotFloats, seat); !status.ok()) return status;
  std::vector<T> values(seat.ranks);
  std::memcpy(static_cast<void*>(values.data()), slots.data(), seat.ranks * sizeof(T));
  return values;
}

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_AGREEMENT_H_
