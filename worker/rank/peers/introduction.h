// Introduction: before they train, the ranks of a generation tell one another what data they read and how much they
// have to store. Ranks on different data would train on a mixture that nobody asked for. Collective; owned by the
// rank's compute thread.
#ifndef LYNX_WORKER_RANK_PEERS_INTRODUCTION_H_
#define LYNX_WORKER_RANK_PEERS_INTRODUCTION_H_

#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/data/data_fingerprint.h"
#include "worker/rank/peers/agreement.h"

namespace lynx {

// Returns the bytes that a checkpoint has, from those of each rank's shard (0: it writes none). FailedPrecondition,
// on every rank, when they read different data: names the first rank that differs from rank 0, with both.
absl::StatusOr<Bytes> CheckSameData(const DataFingerprint& data, Bytes own_shard, const Seat& seat);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_INTRODUCTION_H_
