// Dial: returns a connected gRPC channel to a server, or an error within a bounded time. LeaderOf: what a server that stands by
// says of the leader. Thread-safe.
#ifndef LYNX_NODE_CHANNEL_H_
#define LYNX_NODE_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// Returns the credentials of a new connection. It is called for each connection, so that a renewed certificate is used. null:
// plain text.
using CredentialSource = std::function<absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>()>;

// How a channel finds out that the server's machine or process is lost, though nothing closed the connection. When the server
// has sent nothing for `every_ms` during a call, the channel pings it. Without an answer within `limit_ms`, the connection
// counts as lost.
struct PingPace {
  int every_ms, limit_ms;
};
// With several servers another one may lead already, so a lost one is noticed sooner: after 9 s at most. lynx-server refuses
// pings that come more often than every 5 s.
constexpr PingPace PingPaceFor(bool several_servers) {
  return several_servers ? PingPace{.every_ms = 6'000, .limit_ms = 3'000} : PingPace{.every_ms = 10'000, .limit_ms = 5'000};
}

// Connects to the server. Unavailable: the server refuses. DeadlineExceeded: there was no answer within `limit`. Cancelled:
// `stop` became true; the error comes soon after that. Errors of `credentials` are returned unchanged. Proxies from
// the environment are not used.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& server, Nanos limit, const std::atomic<bool>& stop,
                                                    const CredentialSource& credentials = nullptr,
                                                    PingPace pings = PingPaceFor(false));

// If the call was refused unread because the server stands by (common/standby.h): the address of the leader, or "" if the
// server knows none. nullopt: the call ended in another way. `context`: of a call that has ended with `status`.
std::optional<std::string> LeaderOf(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace lynx

#endif  // LYNX_NODE_CHANNEL_H_
