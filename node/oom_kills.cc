#include "node/oom_kills.h"

#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

std::optional<int64_t> CountIn(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t count = 0;
    if (words.size() == 2 && words[0] == "oom_kill" && absl::SimpleAtoi(words[1], &count)) return count;
  }
  return std::nullopt;
}

}  // namespace

void OomKills::Look(Nanos now) {
  const std::optional<int64_t> count = CountIn(file_);
  if (!count.has_value()) return;
  if (count_.has_value() && *count > *count_) seen_ = now;
  count_ = count;
}

std::string OomCounterFile(const std::string& proc, const std::string& cgroups) {
  std::vector<std::string> files;
  std::ifstream own(absl::StrCat(proc, "/self/cgroup"));
  // The line is "0::/path" in version 2 and "4:memory:/path" in version 1. In a container, the path may be a path of the host
  // that is not visible here. Then the mounted cgroup is the container's own.
  for (std::string line; std::getline(own, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    if (parts[1].empty()) {
      files.push_back(absl::StrCat(cgroups, path, "/memory.events"));
      files.push_back(absl::StrCat(cgroups, "/memory.events"));
    } else if (parts[1] == "memory") {
      files.push_back(absl::StrCat(cgroups, "/memory", path, "/memory.oom_control"));
      files.push_back(absl::StrCat(cgroups, "/memory/memory.oom_control"));
    }
  }
  for (const std::string& file : files) {
    if (CountIn(file).has_value()) return file;
  }
  return absl::StrCat(proc, "/vmstat");
}

}  // namespace lynx
