// Prints what ranks wrote, line by line, and follows it until their job has ended. One thread.
#ifndef LYNX_CLI_CONNECT_LOG_PRINTER_H_
#define LYNX_CLI_CONNECT_LOG_PRINTER_H_

#include <cstdio>
#include <functional>

#include "absl/status/status.h"
#include "cli/connect/client.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx::cli {

// Prints "[rank 2 g1] text" at once. Control characters in the text are written as escapes.
void PrintLogLine(const v1::LogLine& line);

// Calls `each` for the lines that the request asks for. Then calls it for new lines, in the order in which the server received
// them, until the job has ended. If the server is lost meanwhile, asks again for two minutes.
absl::Status FollowLogs(Client& client, v1::GetLogsRequest request, const std::function<void(const v1::LogLine&)>& each);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_LOG_PRINTER_H_
