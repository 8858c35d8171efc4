// The maximum size of a message that the server, the daemons and the command line accept. Programs of large jobs are megabytes
// of text, which is more than gRPC's default limit of 4 MiB.
#ifndef LYNX_PROTO_MESSAGE_LIMIT_H_
#define LYNX_PROTO_MESSAGE_LIMIT_H_

namespace lynx {

inline constexpr int kMaxMessageBytes = 64 << 20;

}  // namespace lynx

#endif  // LYNX_PROTO_MESSAGE_LIMIT_H_
