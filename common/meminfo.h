// A machine's available memory, as Linux reports it. Thread-safe.
#ifndef LYNX_COMMON_MEMINFO_H_
#define LYNX_COMMON_MEMINFO_H_

#include <string>

#include "common/units.h"

namespace lynx {

// Returns MemAvailable from the text of /proc/meminfo. 0: the text does not contain it.
Bytes AvailableMemory(const std::string& meminfo);
// Returns the available memory of this machine at present. 0: unknown.
Bytes AvailableMemory();

// Returns the process's own memory that is in RAM, without pages of files and shared memory. `statm` is the text of
// /proc/self/statm, and `page` is the size of a page. 0: the text has another form.
Bytes ResidentMemory(const std::string& statm, Bytes page);
// Returns the present value for this process.
Bytes ResidentMemory();

}  // namespace lynx

#endif  // LYNX_COMMON_MEMINFO_H_
