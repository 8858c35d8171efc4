#include "common/meminfo.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace lynx {

Bytes AvailableMemory(const std::string& meminfo) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(meminfo, '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() != 3 || words[0] != "MemAvailable:") continue;
    return words[2] == "kB" && absl::SimpleAtoi(words[1], &kibibytes) ? kKiB * kibibytes : Bytes(0);
  }
  return Bytes(0);
}

Bytes AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  return AvailableMemory(std::string(std::istreambuf_iterator<char>(file), {}));
}

// In statm, the second number counts the process's pages in RAM. The third number counts the pages among them that are backed
// by files or shared.
Bytes ResidentMemory(const std::string& statm, Bytes page) {
  const std::vector<std::string> words = absl::StrSplit(statm, ' ', absl::SkipEmpty());
  int64_t resident = 0, shared = 0;
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &resident) || !absl::SimpleAtoi(words[2], &shared)) return Bytes(0);
  return page * std::max<int64_t>(0, resident - shared);
}

Bytes ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  return ResidentMemory(std::string(std::istreambuf_iterator<char>(file), {}), Bytes(sysconf(_SC_PAGESIZE)));
}

}  // namespace lynx
