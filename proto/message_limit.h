// The largest message that server, daemons and command line take: programs of large jobs are megabytes of text, beyond
// gRPC's default of 4 MiB. A constant.
#ifndef LYNX_PROTO_MESSAGE_LIMIT_H_
#define LYNX_PROTO_MESSAGE_LIMIT_H_

namespace lynx {

inline constexpr int kMaxMessageBytes = 64 << 20;

}  // namespace lynx

#endif  // LYNX_PROTO_MESSAGE_LIMIT_H_
