// A FaultCause that is attached to a status. The status carries it from where the cause is known to the rank's last report.
// Annotate (common/status.h) keeps only the code, so the cause must be attached after the last Annotate. Thread-safe.
#ifndef LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_
#define LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fault_cause.h"

namespace lynx::worker {

// Returns the status with the cause attached. A status that already has a cause, or that reports a lost peer, is not changed.
absl::Status WithCause(absl::Status status, FaultCause cause);
// Attaches the cause that follows from the code of an error of the backend, the states or the engine
// (worker/backend/backend.h): memory, the device, or the program. DataLoss means a bad token in the data that the engine was
// given (worker/data/dataset.h). Other codes give no cause.
absl::Status WithCauseOfCode(absl::Status status);
FaultCause CauseOf(const absl::Status& status);
// DataLoss with the cause kLink: the links to these ranks are bad.
absl::Status LinkFailure(const std::string& message, const std::vector<int32_t>& peers);
// The ranks of a LinkFailure; empty for any other status.
std::vector<int32_t> LinkPeersOf(const absl::Status& status);

template <class T>
absl::StatusOr<T> WithCause(absl::StatusOr<T> result, FaultCause cause) {
  if (result.ok()) return result;
  return WithCause(result.status(), cause);
}
template <class T>
absl::StatusOr<T> WithCauseOfCode(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return WithCauseOfCode(result.status());
}

// True for errors that the communicator returns if another rank is gone, is silent or gave up.
inline bool IsPeerLoss(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_
