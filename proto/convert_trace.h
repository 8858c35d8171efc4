// Bounds of traces. As proto/convert.h. Pure; thread-safe.
#ifndef LYNX_PROTO_CONVERT_TRACE_H_
#define LYNX_PROTO_CONVERT_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "lynx/v1/cluster.pb.h"

namespace lynx {

// A part of a trace fits the program that it is of: whole actions, within it, and nothing beyond the wire's bounds.
absl::Status CheckTracePart(const std::string& path, const v1::TraceReport& message);

}  // namespace lynx

#endif  // LYNX_PROTO_CONVERT_TRACE_H_
