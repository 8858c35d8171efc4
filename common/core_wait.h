// What Linux says of how long a thread had to wait for a processor core. Thread-safe.
#ifndef LYNX_COMMON_CORE_WAIT_H_
#define LYNX_COMMON_CORE_WAIT_H_

#include <string_view>

#include "common/units.h"

namespace lynx {

// From the text of /proc/PID/schedstat (Linux, Documentation/scheduler/sched-stats: time on a core, time waiting on a run
// queue, time slices): the second number; 0 if it is not that.
Nanos CoreWait(std::string_view schedstat);
// Of the calling thread since it began: ready to run, while others had its core. Neither what it slept nor what a hypervisor
// took from the core is in it. 0 where the kernel does not keep it. Allocates nothing.
Nanos ThreadCoreWait();

}  // namespace lynx

#endif  // LYNX_COMMON_CORE_WAIT_H_
