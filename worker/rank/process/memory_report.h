// What a rank says when the process itself runs out of memory: nothing can be allocated any more, so the words are made
// beforehand.
#ifndef LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
#define LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// From now on, where `new` finds no memory or a thread's stack does not, the process appends a failure with FaultCause::kMemory
// to `report_file`, says so on stderr and ends with kRankExitFailure; where there may be no more threads, one with
// FaultCause::kUnknown that says which limits to look at. Once in a process, before it has threads. The status says what errno
// does.
absl::Status ReportWhenMemoryEnds(const std::string& report_file);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PROCESS_MEMORY_REPORT_H_
