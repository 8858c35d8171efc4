#include "worker/rank/agreement.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

struct StatusSlot {
  int32_t code;
  int32_t message_bytes;
  char message[kAgreementMessageBytes];
};

}  // namespace

absl::Status GatherSlots(std::vector<float>& slots, int64_t slot_floats, const Seat& seat) {
  LYNX_CHECK(static_cast<int64_t>(slots.size()) == seat.ranks * slot_floats);
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                        seat.communicator.StartAllGather(Group::kWorld, slots.data(), slot_floats));
  return seat.communicator.Wait(ticket).status();
}

absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, const Seat& seat) {
  const std::string message(own.message());
  StatusSlot slot{};
  slot.code = own.raw_code();
  slot.message_bytes = static_cast<int32_t>(std::min<size_t>(message.size(), kAgreementMessageBytes));
  std::memcpy(slot.message, message.data(), slot.message_bytes);
  LYNX_ASSIGN_OR_RETURN(const std::vector<StatusSlot> slots, GatherValues(slot, seat));

  std::vector<absl::Status> statuses;
  for (const StatusSlot& one : slots) {
    LYNX_CHECK(one.message_bytes >= 0 && one.message_bytes <= kAgreementMessageBytes);
    statuses.emplace_back(static_cast<absl::StatusCode>(one.code), std::string(one.message, one.message_bytes));
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
