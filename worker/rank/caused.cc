#include "worker/rank/caused.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"

namespace lynx {
namespace {

constexpr char kPayload[] = "lynx/fault-cause";

}  // namespace

absl::Status Caused(absl::Status status, FaultCause cause) {
  if (status.ok() || IsPeerLoss(status) || status.GetPayload(kPayload).has_value()) return status;
  if (cause != FaultCause::kUnknown) status.SetPayload(kPayload, absl::Cord(FaultCauseName(cause)));
  return status;
}

absl::Status CausedByCode(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return Caused(std::move(status), FaultCause::kMemory);
    case absl::StatusCode::kAborted:
      return Caused(std::move(status), FaultCause::kDevice);
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return Caused(std::move(status), FaultCause::kProgram);
    default:
      return status;
  }
}

FaultCause CauseOf(const absl::Status& status) {
  FaultCause cause = FaultCause::kUnknown;
  if (const auto payload = status.GetPayload(kPayload); payload.has_value()) ParseFaultCause(std::string(*payload), cause);
  return cause;
}

}  // namespace lynx
