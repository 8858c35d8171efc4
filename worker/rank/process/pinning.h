// Pinning: which cores a rank's threads run on. Thread-safe.
#ifndef LYNX_WORKER_RANK_PROCESS_PINNING_H_
#define LYNX_WORKER_RANK_PROCESS_PINNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx {

enum class PinResult : uint8_t { kPinned, kWasPinned };

// Pins the calling thread, and every thread that it starts from now on, to these cores. Empty: does nothing.
// kWasPinned: nothing has changed. InvalidArgument when none of them is one that this process may use.
absl::StatusOr<PinResult> PinCallingThread(const std::vector<int32_t>& cores);

// The processor's name, as /proc/cpuinfo has it; "unknown processor" where it does not say.
std::string ProcessorName();

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PROCESS_PINNING_H_
