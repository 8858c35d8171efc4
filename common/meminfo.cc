#include "common/meminfo.h"

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

}  // namespace lynx
