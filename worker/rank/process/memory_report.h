// Lets a rank report that its process has run out of memory. No memory can be allocated at that moment, so the report is
// prepared in advance.
#ifndef LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
#define LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace lynx::worker {

// Prepares the report. From now on, if `new` or the stack of a thread gets no memory, the process appends a failure with
// FaultCause::kMemory to `report_file`, says so on stderr and ends with kRankExitFailure. If the number of threads is limited,
// the failure has FaultCause::kUnknown and says which limits to check. Call it once in a process, before the process has
// several threads. The status follows errno.
absl::Status ReportWhenMemoryEnds(const std::string& report_file);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
