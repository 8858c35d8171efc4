// CheckSameData: before the ranks of a generation train, they tell each other what data they read and how large their shards
// are. Ranks that read different data would train on a mixture that nobody asked for. Collective; owned by the rank's compute
// thread.
#ifndef LYNX_WORKER_RANK_PEERS_SAME_DATA_H_
#define LYNX_WORKER_RANK_PEERS_SAME_DATA_H_

#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/data/data_fingerprint.h"
#include "worker/rank/peers/agreement.h"

namespace lynx::worker {

// Returns the size of a whole checkpoint: the sum of the ranks' shards. `own_shard` is 0 if the rank writes no shard.
// FailedPrecondition, on every rank, if ranks read different data; the error names the first rank that differs from rank 0, and
// both data sets.
absl::StatusOr<Bytes> CheckSameData(const DataFingerprint& data, Bytes own_shard, const RankGroup& seat);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_SAME_DATA_H_
