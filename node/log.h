// The log of a daemon. By itself, so that programs without one do without its library.
#ifndef LYNX_NODE_LOG_H_
#define LYNX_NODE_LOG_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// Log lines go to standard error: time, level, text. `level`: trace, debug, info, warn, error; InvalidArgument
// otherwise. To be called once.
absl::Status StartLog(const std::string& level);

}  // namespace lynx

#endif  // LYNX_NODE_LOG_H_
