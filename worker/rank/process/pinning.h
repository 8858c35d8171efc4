// Pinning restricts a rank's threads to given cores. Thread-safe.
#ifndef LYNX_WORKER_RANK_PROCESS_PINNING_H_
#define LYNX_WORKER_RANK_PROCESS_PINNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::worker {

enum class PinResult : uint8_t { kPinned, kWasPinned };

// Pins the calling thread, and every thread that it starts from now on, to these cores. If `cores` is empty, does nothing and
// returns kWasPinned. Also returns kWasPinned if the thread was already pinned to these cores. Returns InvalidArgument if this
// process may use none of them, or if the number of a core is out of range.
absl::StatusOr<PinResult> PinCallingThread(const std::vector<int32_t>& cores);

// Returns the processor's name in /proc/cpuinfo, or "unknown processor" if it has none.
std::string ProcessorName();

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_PINNING_H_
