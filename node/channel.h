// Dial: a gRPC channel to the server that is connected, or an error within a bounded time. Thread-safe.
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

// What a connection proves and asks for; called for each one, so that a renewed certificate is used. null: plain text.
using CredentialSource = std::function<absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>()>;

// Unavailable when the server refuses, DeadlineExceeded when nobody answers within `limit`, Cancelled soon after
// `stop` becomes true. The channel pings an idle server every 10 s and gives up after 5 s without an answer, so that
// a lost machine is noticed; proxies from the environment are not used. An error of `credentials` is passed on.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& server, Nanos limit, const std::atomic<bool>& stop,
                                                    const CredentialSource& credentials = nullptr);

}  // namespace lynx

#endif  // LYNX_NODE_CHANNEL_H_
