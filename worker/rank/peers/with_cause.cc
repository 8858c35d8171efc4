#include "worker/rank/peers/with_cause.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lynx::worker {
namespace {

constexpr char kPayload[] = "lynx/fault-cause";
constexpr char kPeersPayload[] = "lynx/fault-peers";  // the payload has decimal numbers of ranks, separated by commas

}  // namespace

absl::Status WithCause(absl::Status status, FaultCause cause) {
  if (status.ok() || IsPeerLoss(status) || status.GetPayload(kPayload).has_value()) return status;
  if (cause != FaultCause::kUnknown) status.SetPayload(kPayload, absl::Cord(EnumName(cause)));
  return status;
}

absl::Status WithCauseOfCode(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted: return WithCause(std::move(status), FaultCause::kMemory);
    case absl::StatusCode::kAborted: return WithCause(std::move(status), FaultCause::kDevice);
    case absl::StatusCode::kDataLoss: return WithCause(std::move(status), FaultCause::kToken);
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented: return WithCause(std::move(status), FaultCause::kProgram);
    default: return status;
  }
}

FaultCause CauseOf(const absl::Status& status) {
  FaultCause cause = FaultCause::kUnknown;
  if (const auto payload = status.GetPayload(kPayload); payload.has_value()) ParseEnum(std::string(*payload), cause);
  return cause;
}

absl::Status LinkFailure(const std::string& message, const std::vector<int32_t>& peers) {
  absl::Status status = WithCause(absl::DataLossError(message), FaultCause::kLink);
  status.SetPayload(kPeersPayload, absl::Cord(absl::StrJoin(peers, ",")));
  return status;
}

std::vector<int32_t> LinkPeersOf(const absl::Status& status) {
  std::vector<int32_t> peers;
  const auto payload = status.GetPayload(kPeersPayload);
  if (!payload.has_value()) return peers;
  const std::string text(*payload);
  for (const std::string& peer : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty())))
    peers.push_back(std::stoi(peer));
  return peers;
}

}  // namespace lynx::worker
