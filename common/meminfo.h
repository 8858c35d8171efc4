// A machine's available memory, as Linux reports it. Thread-safe.
#ifndef LYNX_COMMON_MEMINFO_H_
#define LYNX_COMMON_MEMINFO_H_

#include <string>

#include "common/units.h"

namespace lynx {

// MemAvailable from the text of /proc/meminfo; 0: it is missing.
Bytes AvailableMemory(const std::string& meminfo);
// The available memory of this machine now; 0: unknown.
Bytes AvailableMemory();

// From the text of /proc/self/statm: the process's own memory that is in RAM, without pages of files and shared memory; 0 if
// the text has another form.
Bytes ResidentMemory(const std::string& statm, Bytes page);
// The same for this process, now.
Bytes ResidentMemory();

}  // namespace lynx

#endif  // LYNX_COMMON_MEMINFO_H_
