// Agreement: every rank tells every other how it fared, so that all go on alike. Collective; owned by the rank's
// compute thread.
#ifndef LYNX_WORKER_RANK_AGREEMENT_H_
#define LYNX_WORKER_RANK_AGREEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"

namespace lynx {

// Longer messages are cut.
inline constexpr int kAgreementMessageBytes = 504;

// The statuses of all ranks, by rank, on every rank. No rank returns before every rank has called. An error is the
// communicator's.
absl::StatusOr<std::vector<absl::Status>> GatherStatuses(const absl::Status& own, int32_t rank, int32_t ranks,
                                                         Communicator& communicator);

// OK if all are; else the first failing rank's code, with "rank N: " before its message.
absl::Status FirstFailure(const std::vector<absl::Status>& statuses);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_AGREEMENT_H_
