// Conversion between protocol messages and the worker's domain types, for the worker daemon: what a rank process is
// told. As proto/convert.h: InvalidArgument names the field. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_WORKER_H_
#define LYNX_PROTO_CONVERT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "worker/contract/rank_config.h"

namespace lynx {

// Everything but `threads` and `pacing_bytes_per_second`, which are the daemon's own. `peers` may be empty (bind and
// wait) or complete. `checkpoint_directory` may be empty: the daemon puts its default. The program is parsed and its
// actions are of the rank's stage; whether it is valid is the rank process's check.
absl::StatusOr<RankConfig> RankConfigFromProto(const v1::RankAssignment& message, const std::string& path = "assignment");

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_WORKER_H_
