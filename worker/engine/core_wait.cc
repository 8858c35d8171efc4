#include "worker/engine/core_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>

namespace lynx::worker {

Nanos CoreWait(std::string_view schedstat) {
  const size_t space = schedstat.find(' ');
  if (space == std::string_view::npos) return Nanos(0);
  const char* end = schedstat.data() + schedstat.size();
  int64_t wait = 0;
  const auto [after, error] = std::from_chars(schedstat.data() + space + 1, end, wait);
  return error == std::errc() && after != end && *after == ' ' && wait >= 0 ? Nanos(wait) : Nanos(0);
}

Nanos ThreadCoreWait() {
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Nanos(0);
  char text[96];
  const ssize_t size = read(fd, text, sizeof text);
  close(fd);
  return size > 0 ? CoreWait({text, static_cast<size_t>(size)}) : Nanos(0);
}

}  // namespace lynx::worker
