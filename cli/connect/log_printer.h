// What ranks wrote: printed line by line, and followed until their job has ended. One thread.
#ifndef LYNX_CLI_CONNECT_LOG_PRINTER_H_
#define LYNX_CLI_CONNECT_LOG_PRINTER_H_

#include <cstdio>
#include <functional>

#include "absl/status/status.h"
#include "cli/connect/client.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx {

// "[rank 2 g1] text", each line at once; controls in it are written out.
void PrintLogLine(const v1::LogLine& line);

// Calls `each` for the lines that the request asks for, and then for those that come, in the order in which the server got
// them, until the job has ended. A server that is lost meanwhile is asked again for two minutes.
absl::Status FollowLogs(Client& client, v1::GetLogsRequest request, const std::function<void(const v1::LogLine&)>& each);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_LOG_PRINTER_H_
