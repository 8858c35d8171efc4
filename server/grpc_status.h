// From absl::Status to grpc::Status: the one place where RPCs get their codes. Pure.
#ifndef LYNX_SERVER_GRPC_STATUS_H_
#define LYNX_SERVER_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace lynx {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The text travels in a header, whose size is limited.
  constexpr size_t kLongest = 4000;
  std::string text(status.message());
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), text);
}

}  // namespace lynx

#endif  // LYNX_SERVER_GRPC_STATUS_H_
