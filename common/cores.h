// The cores on which threads may run, on machines with any number of them: a cpu_set_t ends at 1024. Thread-safe.
#ifndef LYNX_COMMON_CORES_H_
#define LYNX_COMMON_CORES_H_

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lynx {

// More than any kernel is built for.
inline constexpr int32_t kMaxKernelCores = 1 << 16;

// As sched_getaffinity, of the calling thread: writes into a set of so many bytes; 0, or -1 with errno EINVAL where it is too
// small.
using ReadAffinity = std::function<int(size_t bytes, cpu_set_t* set)>;

// The cores that the calling thread may run on, in order; empty where the kernel does not say.
std::vector<int32_t> AvailableCores();
std::vector<int32_t> AvailableCores(const ReadAffinity& read);

// From now on the calling thread runs on these alone, each from 0 to kMaxKernelCores - 1. False, with errno, where the kernel
// refuses.
bool RunOnCores(const std::vector<int32_t>& cores);

}  // namespace lynx

#endif  // LYNX_COMMON_CORES_H_
