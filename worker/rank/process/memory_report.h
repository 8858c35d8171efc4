// Lets a rank report that its process has run out of memory. No memory can be allocated at that moment, so the report is
// prepared in advance.
#ifndef LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
#define LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace lynx::worker {

// Prepares the report. From now on, the process reports if `new` finds no memory or if a thread cannot start. It appends a
// failure to `report_file`, writes a line to stderr and ends with kRankExitFailure. The cause is FaultCause::kMemory. But if a
// thread cannot start although there is memory for its stack, the cause is kUnknown, and the text names the limits to check.
// Call this function once in a process, before the process has several threads. Returns InvalidArgument if `report_file` cannot
// be opened.
absl::Status ReportWhenMemoryEnds(const std::string& report_file);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
