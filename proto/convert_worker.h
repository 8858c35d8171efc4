// Conversion between protocol messages and the worker's domain types, for the worker daemon: the configuration of a
// rank process. As in proto/convert.h, InvalidArgument names the field. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_WORKER_H_
#define LYNX_PROTO_CONVERT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "worker/contract/rank_config.h"

namespace lynx {

// Sets everything except `threads` and `pacing_bytes_per_second`, which the daemon sets itself. `peers` may be empty
// (bind and wait) or complete. `checkpoint_directory` may be empty; then the daemon sets its default. Checks that the
// program can be parsed and that its actions belong to the rank's stage. The rank process checks whether the program is
// valid.
absl::StatusOr<RankConfig> RankConfigFromProto(const v1::RankAssignment& message, const std::string& path = "assignment");

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_WORKER_H_
