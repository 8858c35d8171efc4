// Conversion between a rank's configuration and the message in which the server sends it to the rank's daemon. Both directions
// use the Describe functions of worker/contract/rank_config_fields.h. As in proto/convert.h, InvalidArgument names the field.
// Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_WORKER_H_
#define LYNX_PROTO_CONVERT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "worker/contract/rank_config.h"

namespace lynx {

// The message does not contain what the daemon itself sets. It also does not contain RankAssignment.yield, which is not part of
// a rank's configuration.
v1::RankAssignment ToProto(RankConfig config);
// Fills all fields that the server sets. The daemon itself sets `threads`, `pacing_bytes_per_second`,
// `last_checkpoint_patience` and the fields about in-memory copies. `peers` may be empty (the rank binds a socket and waits) or
// complete. If `checkpoint_directory` is empty, the daemon sets its default. The program is parsed, and its actions must belong
// to the rank's stage; the rank process checks whether the program is valid.
absl::StatusOr<RankConfig> RankConfigFromProto(const v1::RankAssignment& message, const std::string& path = "assignment");

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_WORKER_H_
