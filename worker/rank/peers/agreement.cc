#include "worker/rank/peers/agreement.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

struct StatusSlot {
  int32_t code;
  int32_t message_bytes;
  char message[kAgreementMessageBytes];
};

}  // namespace

absl::Status GatherSlots(std::vector<float>& slots, int64_t slot_floats, const RankGroup& group) {
  LYNX_CHECK(static_cast<int64_t>(slots.size()) == group.ranks * slot_floats);
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket,
                        group.communicator.StartAllGather(Group::kWorld, slots.data(), slot_floats));
  return group.communicator.Wait(ticket).status();
}

absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, const RankGroup& group) {
  const std::string message(own.message());
  StatusSlot slot{};
  slot.code = own.raw_code();
  slot.message_bytes = static_cast<int32_t>(std::min<size_t>(message.size(), kAgreementMessageBytes));
  std::memcpy(slot.message, message.data(), slot.message_bytes);
  LYNX_ASSIGN_OR_RETURN(const std::vector<StatusSlot> slots, GatherValues(slot, group));

  std::vector<absl::Status> statuses;
  for (const StatusSlot& one : slots) {
    LYNX_CHECK(one.message_bytes >= 0 && one.message_bytes <= kAgreementMessageBytes);
    statuses.emplace_back(static_cast<absl::StatusCode>(one.code), std::string(one.message, one.message_bytes));
  }
  return statuses;
}

absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& own, const RankGroup& group) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, GatherValues(static_cast<int64_t>(own.size()), group));
  const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  const size_t slot_floats = (longest + sizeof(float) - 1) / sizeof(float);
  std::vector<std::string> texts(group.ranks);
  if (slot_floats == 0) return texts;
  std::vector<float> slots(group.ranks * slot_floats);  // holds the bytes of the texts; the gather only moves them
  std::memcpy(&slots[group.rank * slot_floats], own.data(), own.size());
  LYNX_RETURN_IF_ERROR(GatherSlots(slots, static_cast<int64_t>(slot_floats), group));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    LYNX_CHECK(sizes[rank] >= 0);
    texts[rank].assign(reinterpret_cast<const char*>(&slots[rank * slot_floats]), static_cast<size_t>(sizes[rank]));
  }
  return texts;
}

absl::Status FirstFailure(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].ok()) return Annotate(statuses[rank], absl::StrCat("rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace lynx::worker
