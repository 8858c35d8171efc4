// Files that verbs write for people: pages, traces, another framework's settings. One thread.
#ifndef LYNX_CLI_OUTPUT_OUTPUT_FILE_H_
#define LYNX_CLI_OUTPUT_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/report/chrome_trace.h"

namespace lynx {

// Writes `content` to the file that the option `option` ("--html") names, all or nothing; a link stays, and what it leads to is
// written. A device, a pipe and a descriptor (/dev/stdout) are written to as they are. The error names both and what to do.
absl::Status WriteOutput(const std::string& option, const std::string& path, const std::string& content);

// Says on standard error what was written and what to do with it, so that standard output stays the answer.
void TellWritten(const std::string& what, const std::string& path, size_t bytes, const std::string& hint);

// A trace of a step of `length`, with both of the above.
absl::Status WriteTrace(const std::string& option, const std::string& path, const ChromeTraceText& trace, Nanos length);

}  // namespace lynx

#endif  // LYNX_CLI_OUTPUT_OUTPUT_FILE_H_
