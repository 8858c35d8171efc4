// A FaultCause that travels with a status, from where it is known to the rank's last report. Annotate (common/status.h) keeps
// the code alone, so it is set above the last of those. Thread-safe.
#ifndef LYNX_WORKER_RANK_PEERS_CAUSED_H_
#define LYNX_WORKER_RANK_PEERS_CAUSED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fault_cause.h"

namespace lynx {

// The same status with the cause; one that has a cause already, or tells of a lost peer, is left as it is.
absl::Status WithCause(absl::Status status, FaultCause cause);
// What the code of an error of the backend, the states or the engine says of its cause (worker/backend/backend.h): memory, the
// device, or the program. DataLoss is a token of the data that the engine was given (worker/data/dataset.h). Others say
// nothing.
absl::Status CausedByCode(absl::Status status);
FaultCause CauseOf(const absl::Status& status);
// DataLoss with the cause kLink: the links to those ranks are bad.
absl::Status LinkFailure(const std::string& message, const std::vector<int32_t>& peers);
// Of a LinkFailure; else none.
std::vector<int32_t> LinkPeersOf(const absl::Status& status);

template <class T>
absl::StatusOr<T> WithCause(absl::StatusOr<T> result, FaultCause cause) {
  if (result.ok()) return result;
  return WithCause(result.status(), cause);
}
template <class T>
absl::StatusOr<T> CausedByCode(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return CausedByCode(result.status());
}

// An error that the communicator gives when another rank is gone, silent or gave up.
inline bool IsPeerLoss(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_CAUSED_H_
