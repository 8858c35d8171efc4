#include "node/channel.h"

#include <chrono>

#include "common/standby.h"
#include "common/status.h"
#include "proto/message_limit.h"

namespace lynx {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& server, Nanos limit, const std::atomic<bool>& stop,
                                                    const CredentialSource& source, PingPace pings) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (source != nullptr) {
    LYNX_ASSIGN_OR_RETURN(credentials, source());
  }
  // gRPC does not tell an application why a connection failed, so the text lists the possible reasons.
  const std::string how = source == nullptr
                              ? ", in plain text: one that uses TLS wants --identity-dir"
                              : ", or it does not accept this node's certificate, or its own is not of this cluster";
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, pings.every_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, pings.limit_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Each attempt makes its own connection, instead of sharing one with an earlier failed attempt.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(server, credentials, arguments);

  const auto deadline = std::chrono::system_clock::now() + std::chrono::nanoseconds(limit.value);
  while (true) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return channel;
    if (stop) return absl::CancelledError("stopping");
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(absl::StrCat("no server answers at ", server, how));
    }
    const auto now = std::chrono::system_clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("no server answers at ", server, " within ", FormatDuration(limit)));
    }
    channel->WaitForStateChange(state, std::min(deadline, now + std::chrono::milliseconds(100)));
  }
}

std::optional<std::string> LeaderOf(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return std::nullopt;
  const auto& metadata = context.GetServerTrailingMetadata();
  if (metadata.find(kStandbyKey) == metadata.end()) return std::nullopt;
  const auto leader = metadata.find(kLeaderKey);
  return leader == metadata.end() ? "" : std::string(leader->second.data(), leader->second.size());
}

}  // namespace lynx
