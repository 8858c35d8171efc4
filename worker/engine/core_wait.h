// Core wait is the time in which a thread was ready to run but had to wait for a processor core. Linux reports it. Thread-safe.
#ifndef LYNX_WORKER_ENGINE_CORE_WAIT_H_
#define LYNX_WORKER_ENGINE_CORE_WAIT_H_

#include <string_view>

#include "common/units.h"

namespace lynx::worker {

// Reads the core wait from the text of /proc/PID/schedstat. It is the second of three numbers: time on a core, time waiting on
// a run queue, time slices (Linux, Documentation/scheduler/sched-stats). Returns 0 if the text has another form.
Nanos CoreWait(std::string_view schedstat);
// Returns the core wait of the calling thread since the thread began. The core wait includes neither the time in which the
// thread slept, nor the time that a hypervisor took from the core. Returns 0 if the kernel does not record it. Allocates no
// memory.
Nanos ThreadCoreWait();

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_CORE_WAIT_H_
