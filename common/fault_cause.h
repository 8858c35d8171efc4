// FaultCause: what the rank that failed, or the daemon that saw it end, knows of why. Whose fault it was is the server's to say
// (server/health/attribution.h). Thread-safe.
#ifndef LYNX_COMMON_FAULT_CAUSE_H_
#define LYNX_COMMON_FAULT_CAUSE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lynx {

// Kept as a number in messages: append only.
enum class FaultCause : uint8_t {
  kUnknown,
  kMemory,   // of the device or the machine: an allocation was refused, or the kernel ended the process for want of it
  kData,     // the training or validation data cannot be read, or are not what they should be
  kDisk,     // of the node: the rank's own files cannot be written
  kDevice,   // the device has failed: an uncorrectable error, or it is gone
  kProgram,  // the job or its program: it would fail anywhere
  kCheck,    // the check before a generation found that the device computes or keeps what it should not
  kLink,     // that check found a link to another rank to be bad, or that rank does not answer
  kPath,     // the node does not let jobs use one that the job needs
  kToken,    // the data were read and have a token beyond the model's vocabulary, as they will have the next time
};
inline constexpr int kFaultCauseCount = 10;

namespace internal {
inline constexpr std::array<const char*, kFaultCauseCount> kFaultCauseNames = {"unknown", "memory", "data", "disk", "device",
                                                                               "program", "check",  "link", "path", "token"};
}  // namespace internal

inline const char* FaultCauseName(FaultCause cause) { return internal::kFaultCauseNames.at(static_cast<size_t>(cause)); }
inline bool ParseFaultCause(const std::string& text, FaultCause& cause) {
  for (size_t i = 0; i < internal::kFaultCauseNames.size(); ++i) {
    if (text != internal::kFaultCauseNames[i]) continue;
    cause = static_cast<FaultCause>(i);
    return true;
  }
  return false;
}
// Found by the check before a generation.
constexpr bool IsOfCheck(FaultCause cause) { return cause == FaultCause::kCheck || cause == FaultCause::kLink; }
// From a message; what this version does not know is kUnknown.
constexpr FaultCause FaultCauseOfNumber(int number) {
  return number >= 0 && number < kFaultCauseCount ? static_cast<FaultCause>(number) : FaultCause::kUnknown;
}

}  // namespace lynx

#endif  // LYNX_COMMON_FAULT_CAUSE_H_
