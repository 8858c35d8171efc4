// The log of a daemon. This is a separate file, so that programs without a log do not need the logging library.
#ifndef LYNX_NODE_LOG_H_
#define LYNX_NODE_LOG_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// Starts the log: lines with time, level and text on standard error. `level`: trace, debug, info, warn, error; InvalidArgument
// for anything else. Call it once.
absl::Status StartLog(const std::string& level);

}  // namespace lynx

#endif  // LYNX_NODE_LOG_H_
