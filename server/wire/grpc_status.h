// From absl::Status to grpc::Status: the one place where RPCs get their codes. Pure.
#ifndef LYNX_SERVER_WIRE_GRPC_STATUS_H_
#define LYNX_SERVER_WIRE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace lynx {

// With google.rpc.RetryInfo in its details where server/wire/retry_later.h says when.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace lynx

#endif  // LYNX_SERVER_WIRE_GRPC_STATUS_H_
