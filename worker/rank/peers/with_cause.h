// Attaches a FaultCause to a status. The status then carries the cause from the place where it is known to the rank's last
// report. Annotate (common/status.h) keeps only the code, so attach the cause after the last Annotate. Thread-safe.
#ifndef LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_
#define LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fault_cause.h"

namespace lynx::worker {

// Returns the status with the cause attached. Does not change a status that already has a cause, or that reports a lost peer.
absl::Status WithCause(absl::Status status, FaultCause cause);
// Attaches the cause that follows from the code of an error of the backend, the states or the engine
// (worker/backend/backend.h): memory, device or program. DataLoss gives the cause kToken, because it means a bad token in the
// data set (worker/data/dataset.h). Other codes give no cause.
absl::Status WithCauseOfCode(absl::Status status);
FaultCause CauseOf(const absl::Status& status);
// Returns DataLoss with the cause kLink: the links to the ranks `peers` are bad.
absl::Status LinkFailure(const std::string& message, const std::vector<int32_t>& peers);
// Returns the ranks of a LinkFailure, or an empty list for any other status.
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

// True for the errors that the communicator returns if another rank has ended, is silent or gave up.
inline bool IsPeerLoss(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_WITH_CAUSE_H_
