// LYNX_CHECK stops the process on programmer errors, also in release builds.
//
// Use it only if an error can only be a mistake in our own code. If input, the operating system or a peer can cause the error,
// use absl::Status.
#ifndef LYNX_COMMON_CHECK_H_
#define LYNX_COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace lynx::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: LYNX_CHECK failed: %s\n", file, line, what);
  std::abort();
}

}  // namespace lynx::internal

#define LYNX_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::lynx::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#endif  // LYNX_COMMON_CHECK_H_
