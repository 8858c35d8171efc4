#include "worker/rank/memory_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/rank_report.h"

namespace lynx {
namespace {

constexpr char kReason[] = "the process ran out of memory: it asked for more than this node, or its limit, had left";

int report_fd = -1;
const std::string* report = nullptr;  // as they stand, for a handler that may be called by any thread

// It may only make calls that allocate nothing.
[[noreturn]] void TellAndEnd() {
  constexpr char kLine[] = "lynx-rank: the process ran out of memory\n";
  [[maybe_unused]] ssize_t written = write(report_fd, report->data(), report->size());
  written = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  _exit(kRankExitFailure);
}

}  // namespace

absl::Status ReportWhenMemoryEnds(const std::string& report_file) {
  LYNX_CHECK(report == nullptr);
  report_fd = open(report_file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (report_fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open the report file ", report_file, ": ", std::strerror(errno)));
  }
  report = new std::string(RankReportLine(RankFailure{.reason = kReason, .cause = FaultCause::kMemory}) + "\n");
  std::set_new_handler(TellAndEnd);
  return absl::OkStatus();
}

}  // namespace lynx
