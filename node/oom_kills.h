// OomKills: tells whether the kernel has just killed processes of this node because memory ran out. It uses the counter of
// this process's memory cgroup, which includes its children. If no cgroup is visible, it uses the counter of the whole
// machine. If a process is killed for another reason at about the same time, OomKills cannot tell this from a lack of memory.
// Not thread-safe.
#ifndef LYNX_NODE_OOM_KILLS_H_
#define LYNX_NODE_OOM_KILLS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/units.h"

namespace lynx {

class OomKills {
 public:
  // `file`: a file with a line "oom_kill N", such as a cgroup's memory.events or /proc/vmstat. If it cannot be read, no kills
  // are counted.
  explicit OomKills(std::string file) : file_(std::move(file)) {}

  // Reads the counter. Kills that the first reading shows count as old.
  void Look(Nanos now);
  // True if the counter grew at a Look less than kRecent before `now`.
  bool Recent(Nanos now) const { return seen_.has_value() && now - *seen_ < kRecent; }

  static constexpr Nanos kRecent{3'000'000'000};

 private:
  std::string file_;
  std::optional<int64_t> count_;
  std::optional<Nanos> seen_;  // when the counter grew
};

// The file with the counter for this process: the first readable file of its cgroup, otherwise the machine's. `proc`,
// `cgroups`: mount points.
std::string OomCounterFile(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lynx

#endif  // LYNX_NODE_OOM_KILLS_H_
