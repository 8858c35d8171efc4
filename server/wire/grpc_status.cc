// See grpc_status.h.
#include "server/wire/grpc_status.h"

#include <string>

#include "google/rpc/retry.pb.h"
#include "server/wire/retry_later.h"

namespace lynx::server {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The text is sent in a header, whose size is limited.
  constexpr size_t kLongest = 4000;
  std::string text(status.message());
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::optional<Nanos> delay = RetryDelayOf(status);
  if (!delay.has_value()) return grpc::Status(code, text);
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay->value / 1'000'000'000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay->value % 1'000'000'000));
  google::rpc::Status details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(text);
  details.add_details()->PackFrom(info);
  return grpc::Status(code, text, details.SerializeAsString());
}

}  // namespace lynx::server
