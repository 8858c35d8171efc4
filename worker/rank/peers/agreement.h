// Agreement: every rank tells every other rank its status, a value or a text. So all ranks know the same and continue in the
// same way. Collective; only the rank's compute thread may call it.
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

// The largest size of a status's message. Longer messages are cut.
inline constexpr int kAgreementMessageBytes = 504;

// One rank's access to the exchanges among all ranks.
struct RankGroup {
  int32_t rank = 0;
  int32_t ranks = 1;
  Communicator& communicator;
};

// Returns the statuses of all ranks, by rank, on every rank. No rank returns before every rank has made the call. The only
// errors are those of the communicator.
absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, const RankGroup& group);

// Returns the texts of all ranks, by rank, on every rank. A text may have any length. Otherwise works like GatherStatuses.
absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& own, const RankGroup& group);

// Returns OK if all statuses are OK. Otherwise returns the code of the first rank that failed, with "rank N: " before its
// message.
absl::Status FirstFailure(const std::vector<absl::Status>& statuses);

// Gathers one slot of each rank. `slots` has room for `slot_floats` floats of each rank. The caller fills the slot of this
// rank; the other slots are received.
absl::Status GatherSlots(std::vector<float>& slots, int64_t slot_floats, const RankGroup& group);

// Returns the values of all ranks, by rank, on every rank. Otherwise works like GatherStatuses. T must be plain bytes, and its
// size must be a multiple of four.
template <class T>
absl::StatusOr<std::vector<T>> GatherValues(const T& own, const RankGroup& group) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(float) == 0);
  constexpr int64_t kSlotFloats = sizeof(T) / sizeof(float);
  std::vector<float> slots(group.ranks * kSlotFloats);  // holds the bytes of the values; the gather only moves them
  std::memcpy(&slots[group.rank * kSlotFloats], &own, sizeof(T));
  if (absl::Status status = GatherSlots(slots, kSlotFloats, group); !status.ok()) return status;
  std::vector<T> values(group.ranks);
  std::memcpy(static_cast<void*>(values.data()), slots.data(), group.ranks * sizeof(T));
  return values;
}

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_AGREEMENT_H_
