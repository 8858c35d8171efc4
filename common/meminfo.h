// What Linux says of a machine's memory. Thread-safe.
#ifndef LYNX_COMMON_MEMINFO_H_
#define LYNX_COMMON_MEMINFO_H_

#include <string>

#include "common/units.h"

namespace lynx {

// From the text of /proc/meminfo: MemAvailable; 0 when it is missing.
Bytes AvailableMemory(const std::string& meminfo);
// Of this machine, now; 0 when it does not say.
Bytes AvailableMemory();

}  // namespace lynx

#endif  // LYNX_COMMON_MEMINFO_H_
