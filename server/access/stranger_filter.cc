// See stranger_filter.h.
#include "server/access/stranger_filter.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "server/wire/grpc_status.h"

namespace lynx::server {

grpc::Status StrangerFilter::Process(const InputMetadata& metadata, grpc::AuthContext* connection, OutputMetadata*,
                                     OutputMetadata*) {
  const auto path = metadata.find(":path");
  const bool own =
      path != metadata.end() && absl::StartsWith(absl::string_view(path->second.data(), path->second.size()), "/lynx.v1.");
  if (own) return grpc::Status::OK;
  const Guard* const guard = guard_;
  if (guard == nullptr || !gate_.IsOpen()) return ToGrpc(absl::UnavailableError(gate_.Text()));
  return ToGrpc(guard->RefuseStranger(metadata, *connection));
}

}  // namespace lynx::server
