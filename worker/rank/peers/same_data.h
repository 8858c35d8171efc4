// Before the ranks of a generation train, CheckSameData lets them tell each other which data they read and how large their
// shards are. If ranks read different data, they would train on a mixture that nobody asked for. Collective; only the rank's
// compute thread may call it.
#ifndef LYNX_WORKER_RANK_PEERS_SAME_DATA_H_
#define LYNX_WORKER_RANK_PEERS_SAME_DATA_H_

#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/data/data_fingerprint.h"
#include "worker/rank/peers/agreement.h"

namespace lynx::worker {

// Returns the size of a whole checkpoint: the sum of the ranks' shards. `own_shard` is 0 if the rank writes no shard. Returns
// FailedPrecondition on every rank if ranks read different data. The error names the first rank that differs from rank 0, and
// both data sets.
absl::StatusOr<Bytes> CheckSameData(const DataFingerprint& data, Bytes own_shard, const RankGroup& group);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_SAME_DATA_H_
