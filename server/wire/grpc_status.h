// Conversion from absl::Status to grpc::Status: the one place where RPCs get their status codes. Pure.
#ifndef LYNX_SERVER_WIRE_GRPC_STATUS_H_
#define LYNX_SERVER_WIRE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace lynx::server {

// If the status has a retry delay (server/wire/retry_later.h), the details contain google.rpc.RetryInfo.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace lynx::server

#endif  // LYNX_SERVER_WIRE_GRPC_STATUS_H_
