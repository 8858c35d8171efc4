#include "worker/rank/process/pinning.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_join.h"
#include "common/cores.h"
#include "common/status.h"

namespace lynx::worker {

absl::StatusOr<PinResult> PinCallingThread(const std::vector<int32_t>& cores) {
  if (cores.empty()) return PinResult::kWasPinned;
  for (int32_t core : cores) {
    if (core < 0 || core >= kMaxKernelCores) {
      return absl::InvalidArgumentError(absl::StrCat("core ", core, " is not in 0..", kMaxKernelCores - 1));
    }
  }
  // The kernel may allow fewer cores than requested. So this code compares the available cores before and after the request.
  const std::vector<int32_t> before = AvailableCores();
  if (!before.empty() && RunOnCores(cores)) return AvailableCores() == before ? PinResult::kWasPinned : PinResult::kPinned;
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

}  // namespace lynx::worker
