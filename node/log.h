// The log of a daemon. This is a separate file, so that programs without a log do not need the logging library. Its users do
// not include the logging library's headers either: those take several seconds to compile.
#ifndef LYNX_NODE_LOG_H_
#define LYNX_NODE_LOG_H_

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace lynx {

// Starts the log: lines with time, level and text on standard error. `level`: trace, debug, info, warn, error; InvalidArgument
// for anything else. Call it once.
absl::Status StartLog(const std::string& level);

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Whether the log shows lines of this level.
bool LogShows(LogLevel level);
// Writes one line. Thread-safe.
void WriteLog(LogLevel level, std::string_view text);

// Writes a line. `format` is a format string of the library fmt, such as "{} nodes", and is checked when it is compiled.
template <class... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogShows(level)) WriteLog(level, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace lynx

#endif  // LYNX_NODE_LOG_H_
