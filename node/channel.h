// Dial: returns a connected gRPC channel to the server, or an error within a bounded time. Thread-safe.
#ifndef LYNX_NODE_CHANNEL_H_
#define LYNX_NODE_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// Returns the credentials of a new connection. It is called for each connection, so that a renewed certificate is used. null:
// plain text.
using CredentialSource = std::function<absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>()>;

// Connects to the server. Unavailable: the server refuses. DeadlineExceeded: there was no answer within `limit`. Cancelled:
// `stop` became true; the error comes soon after that. Errors of `credentials` are returned unchanged. The channel pings an
// idle server every 10 s and gives up after 5 s without an answer, so that the loss of a machine is noticed. Proxies from the
// environment are not used.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& server, Nanos limit, const std::atomic<bool>& stop,
                                                    const CredentialSource& credentials = nullptr);

}  // namespace lynx

#endif  // LYNX_NODE_CHANNEL_H_
