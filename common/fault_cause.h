// FaultCause says why a rank failed. It holds what the rank knows, or what the daemon that saw the rank end knows. The server
// decides about the failure's attribution (server/health/attribution.h). Thread-safe.
#ifndef LYNX_COMMON_FAULT_CAUSE_H_
#define LYNX_COMMON_FAULT_CAUSE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/enum_names.h"

namespace lynx {

// Messages contain the number of a value, so new values must be appended.
enum class FaultCause : uint8_t {
  kUnknown,
  kMemory,   // memory of device or machine: an allocation failed, or the kernel ended the process because memory ran out
  kData,     // training or validation data cannot be read or are invalid
  kDisk,     // the rank cannot write its own files on the node
  kDevice,   // the device has failed: it had an uncorrectable error, or it has disappeared
  kProgram,  // the job or its program is wrong, and would fail on any node
  kCheck,    // the node check found that the device computes or stores wrong values
  kLink,     // the node check found a bad link to another rank, or that rank does not answer
  kPath,     // the node does not allow jobs to use a path that the job needs
  kToken,    // the data contain a token that is not in the model's vocabulary; a new attempt would also fail
};
inline constexpr int kFaultCauseCount = 10;

template <>
inline constexpr auto kEnumNames<FaultCause> = EnumTable("unknown", "memory", "data", "disk", "device", "program", "check",
                                                         "link", "path", "token");
static_assert(kEnumNames<FaultCause>.size() == kFaultCauseCount);

// True if the node check before a generation found the fault.
constexpr bool IsOfCheck(FaultCause cause) { return cause == FaultCause::kCheck || cause == FaultCause::kLink; }
// Converts the number in a message. A number that this version does not know becomes kUnknown.
constexpr FaultCause FaultCauseOfNumber(int number) {
  return number >= 0 && number < kFaultCauseCount ? static_cast<FaultCause>(number) : FaultCause::kUnknown;
}

}  // namespace lynx

#endif  // LYNX_COMMON_FAULT_CAUSE_H_
