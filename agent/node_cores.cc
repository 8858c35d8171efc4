#include "agent/node_cores.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/digest.h"

namespace lynx::agent {
namespace {

constexpr size_t kDigestLength = 32;
constexpr int64_t kMaxLimit = 1'000'000'000;  // in thousandths of a core: a million cores

// The words of the file's first line; empty if the file cannot be read.
std::vector<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

std::optional<int64_t> Permille(const std::string& quota, const std::string& period) {
  int64_t used = 0, of = 0;  // microseconds; a quota of "max" or -1 means no limit
  if (!absl::SimpleAtoi(quota, &used) || !absl::SimpleAtoi(period, &of) || used <= 0 || of <= 0) return std::nullopt;
  return std::clamp<int64_t>(static_cast<int64_t>(1000.0 * static_cast<double>(used) / static_cast<double>(of)), 1, kMaxLimit);
}

std::optional<int64_t> LimitOf(const std::string& group) {
  if (const std::vector<std::string> both = FirstLine(group + "/cpu.max"); both.size() == 2) return Permille(both[0], both[1]);
  const std::vector<std::string> quota = FirstLine(group + "/cpu.cfs_quota_us"),
                                 period = FirstLine(group + "/cpu.cfs_period_us");
  return quota.size() == 1 && period.size() == 1 ? Permille(quota[0], period[0]) : std::nullopt;
}

// The folders of this process's control groups that may limit processor time, inner groups before outer ones. In a container,
// the kernel may name a path of the host that the container cannot see. Then the mounted folder is the container's own group.
// So the mounted folder comes last in the list.
std::vector<std::string> GroupFolders(const std::string& proc, const std::string& cgroups) {
  std::vector<std::string> folders;
  std::ifstream own(proc + "/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !parts[2].starts_with('/')) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool version2 = parts[1].empty();
    if (!version2 && std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
    const std::string mounted = version2 ? cgroups : absl::StrCat(cgroups, "/", parts[1]);
    for (std::string path = parts[2]; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(mounted + path);
    folders.push_back(mounted);
  }
  return folders;
}

std::string Short(const std::string& text) { return Sha256Hex(text).substr(0, kDigestLength); }

}  // namespace

NodeCores FindNodeCores(const std::string& proc, const std::string& cgroups) {
  NodeCores cores;
  const std::vector<std::string> boot = FirstLine(proc + "/sys/kernel/random/boot_id");
  if (boot.size() == 1) cores.machine = Short("machine " + boot[0]);
  for (const std::string& folder : GroupFolders(proc, cgroups)) {
    const std::optional<int64_t> limit = LimitOf(folder);
    if (!limit.has_value() || (cores.limit_permille > 0 && *limit >= cores.limit_permille)) continue;
    // Paths differ between containers; the inode number of the folder does not.
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) continue;
    cores.limit_permille = *limit;
    cores.limit_group = Short(absl::StrCat("limit ", cores.machine, " ", status.st_ino));
  }
  return cores;
}

}  // namespace lynx::agent
