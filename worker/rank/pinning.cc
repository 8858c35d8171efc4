#include "worker/rank/pinning.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx {

absl::StatusOr<PinResult> PinCallingThread(const std::vector<int32_t>& cores) {
  if (cores.empty()) return PinResult::kWasPinned;
  cpu_set_t wanted, before, after;
  CPU_ZERO(&wanted);
  for (int32_t core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) {
      return absl::InvalidArgumentError(absl::StrCat("core ", core, " is not in 0..", CPU_SETSIZE - 1));
    }
    CPU_SET(core, &wanted);
  }
  // What the kernel makes of the wish may be less, so the sets before and after are what to compare.
  if (sched_getaffinity(0, sizeof(before), &before) == 0 && sched_setaffinity(0, sizeof(wanted), &wanted) == 0 &&
      sched_getaffinity(0, sizeof(after), &after) == 0) {
    return CPU_EQUAL(&before, &after) ? PinResult::kWasPinned : PinResult::kPinned;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot pin to cores ", absl::StrJoin(cores, ","), ": ", std::strerror(errno)));
}

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace lynx
