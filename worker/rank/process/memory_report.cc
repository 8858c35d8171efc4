#include "worker/rank/process/memory_report.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {
namespace {

constexpr char kNoMemory[] = "the process ran out of memory: it asked for more than this node, or its limit, had left";
constexpr char kNoThreads[] =
    "cannot start a thread, though there is memory for it: raise the limit on processes and threads (ulimit -u, or pids.max of "
    "the "
    "cgroup) or end others on this node";

// These are plain global variables, because any thread may call the handlers.
int report_fd = -1;
const std::string* no_memory = nullptr;
const std::string* no_threads = nullptr;
std::terminate_handler terminate_before = nullptr;

// Writes the report to the report file and the line to stderr, and ends the process. Must not allocate memory.
[[noreturn]] void TellAndEnd(std::string_view report, std::string_view line) {
  [[maybe_unused]] ssize_t written = write(report_fd, report.data(), report.size());
  written = write(STDERR_FILENO, line.data(), line.size());
  _exit(kRankExitFailure);
}

[[noreturn]] void EndWithoutMemory() { TellAndEnd(*no_memory, "lynx-rank: the process ran out of memory\n"); }

// True if there is memory for the stack of a thread. If a thread cannot be started, this shows whether memory is missing or the
// number of threads is limited. The error is the same in both cases.
bool MemoryForAStack() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0 || pthread_attr_getstacksize(&attributes, &bytes) != 0) return false;
  void* const stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  munmap(stack, bytes);
  return true;
}

// Handles std::terminate. std::thread throws if it cannot start a thread, and no code of a rank catches this exception.
[[noreturn]] void EndOrTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again || error.code() == std::errc::not_enough_memory) {
      if (!MemoryForAStack()) EndWithoutMemory();
      TellAndEnd(*no_threads, "lynx-rank: cannot start a thread\n");
    }
  } catch (...) {  // other exceptions end the process in the usual way
  }
  terminate_before();
  std::abort();
}

const std::string* ReportOf(const char* reason, FaultCause cause) {
  return new std::string(RankReportLine(RankFailure{.reason = reason, .cause = cause}) + "\n");
}

}  // namespace

absl::Status ReportWhenMemoryEnds(const std::string& report_file) {
  LYNX_CHECK(no_memory == nullptr);
  report_fd = open(report_file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (report_fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot open the report file ", report_file, ": ", std::strerror(errno)));
  }
  no_memory = ReportOf(kNoMemory, FaultCause::kMemory);
  no_threads = ReportOf(kNoThreads, FaultCause::kUnknown);
  std::set_new_handler(EndWithoutMemory);
  terminate_before = std::set_terminate(EndOrTerminate);
  return absl::OkStatus();
}

}  // namespace lynx::worker
