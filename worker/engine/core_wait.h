// Core wait: how long a thread had to wait for a processor core, as Linux reports it. Thread-safe.
#ifndef LYNX_WORKER_ENGINE_CORE_WAIT_H_
#define LYNX_WORKER_ENGINE_CORE_WAIT_H_

#include <string_view>

#include "common/units.h"

namespace lynx::worker {

// Reads the second number (time waiting on a run queue) from the text of /proc/PID/schedstat (Linux,
// Documentation/scheduler/sched-stats: time on a core, time waiting on a run queue, time slices). 0: the text has another form.
Nanos CoreWait(std::string_view schedstat);
// Core wait of the calling thread since it began: the time in which it was ready to run while other threads had its core. Time
// asleep and time that a hypervisor took from the core are not included. 0 if the kernel does not record it. Allocates nothing.
Nanos ThreadCoreWait();

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_CORE_WAIT_H_
