#include "worker/rank/agreement.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

// One rank's slot in the gathered buffer.
struct Slot {
  int32_t code;
  int32_t message_bytes;
  char message[kAgreementMessageBytes];
};
constexpr int64_t kSlotFloats = sizeof(Slot) / sizeof(float);
static_assert(sizeof(Slot) % sizeof(float) == 0);

}  // namespace

absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, int32_t rank, int32_t ranks,
                                                         Communicator& communicator) {
  std::vector<float> slots(ranks * kSlotFloats);  // bit patterns: a gather only moves them
  const std::string message(own.message());
  Slot slot{};
  slot.code = own.raw_code();
  slot.message_bytes = static_cast<int32_t>(std::min<size_t>(message.size(), kAgreementMessageBytes));
  std::memcpy(slot.message, message.data(), slot.message_bytes);
  std::memcpy(&slots[rank * kSlotFloats], &slot, sizeof(slot));

  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                        communicator.StartAllGather(Group::kWorld, slots.data(), kSlotFloats));
  LYNX_RETURN_IF_ERROR(communicator.Wait(ticket).status());

  std::vector<absl::Status> statuses;
  for (int32_t i = 0; i < ranks; ++i) {
    std::memcpy(&slot, &slots[i * kSlotFloats], sizeof(slot));
    LYNX_CHECK(slot.message_bytes >= 0 && slot.message_bytes <= kAgreementMessageBytes);
    statuses.emplace_back(static_cast<absl::StatusCode>(slot.code), std::string(slot.message, slot.message_bytes));
  }
  return statuses;
}

absl::Status FirstFailure(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].ok()) return Annotate(statuses[rank], absl::StrCat("rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace lynx
