// Writes the files that verbs make for people: pages, traces, settings of another framework. One thread.
#ifndef LYNX_CLI_OUTPUT_OUTPUT_FILE_H_
#define LYNX_CLI_OUTPUT_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/report/chrome_trace.h"

namespace lynx::cli {

// Writes `content` to the file that the option `option` ("--html") names, completely or not at all. Symlinks are
// followed. Devices, pipes and descriptors (/dev/stdout) are written in place. The error names the option, the file and
// what to do.
absl::Status WriteOutput(const std::string& option, const std::string& path, const std::string& content);

// Tells on standard error what was written and what to do with it. Standard output has only the answer.
void TellWritten(const std::string& what, const std::string& path, size_t bytes, const std::string& hint);

// Writes a trace of a step of `length`, with WriteOutput and TellWritten.
absl::Status WriteTrace(const std::string& option, const std::string& path, const ChromeTraceText& trace, Nanos length);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_OUTPUT_FILE_H_
