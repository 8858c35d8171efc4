// OomKills: whether the kernel has just ended processes of this node for want of memory, by the counters that it keeps: of the
// memory cgroup of this process, with what it has started, or, where there is none to be seen, of the machine. A process that
// is killed for another reason at the same moment cannot be told from one that was killed for that. Not thread-safe.
#ifndef LYNX_NODE_OOM_KILLS_H_
#define LYNX_NODE_OOM_KILLS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/units.h"

namespace lynx {

class OomKills {
 public:
  // `file`: with a line "oom_kill N", such as a cgroup's memory.events or /proc/vmstat; one that cannot be read counts nothing.
  explicit OomKills(std::string file) : file_(std::move(file)) {}

  // Reads the counter. What it says first counts as long ago.
  void Look(Nanos now);
  // Whether it had grown at a look less than kRecent before `now`.
  bool Recent(Nanos now) const { return seen_.has_value() && now - *seen_ < kRecent; }

  static constexpr Nanos kRecent{3'000'000'000};

 private:
  std::string file_;
  std::optional<int64_t> count_;
  std::optional<Nanos> seen_;  // when it grew
};

// The file that counts for this process: the first of its cgroup's that can be read, else the machine's. `proc`, `cgroups`: as
// mounted.
std::string OomCounterFile(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lynx

#endif  // LYNX_NODE_OOM_KILLS_H_
