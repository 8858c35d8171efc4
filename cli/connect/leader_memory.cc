#include "cli/connect/leader_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/connect/server_place.h"

namespace lynx::cli {
namespace {

constexpr size_t kMaxLine = 8 << 10;

using Entry = std::pair<std::string, std::string>;  // addresses, leader

std::vector<Entry> ReadEntries(const std::string& file) {
  std::vector<Entry> entries;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return entries;
  std::ifstream in(file);
  std::string line;
  while (static_cast<int>(entries.size()) < kMaxRemembered && std::getline(in, line)) {
    const size_t space = line.find(' ');
    if (line.size() > kMaxLine || space == std::string::npos) continue;
    entries.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return entries;
}

bool IsOneWord(const std::string& text) { return !text.empty() && text.find_first_of(" \t\r\n") == std::string::npos; }

}  // namespace

std::string LeadersFile() {
  const std::string context = StandingContextFile();
  return context.empty() ? "" : (std::filesystem::path(context).parent_path() / "leaders").string();
}

std::string RememberedLeader(const std::string& file, const std::string& addresses) {
  if (file.empty()) return "";
  for (const auto& [known, leader] : ReadEntries(file)) {
    if (known == addresses) return leader;
  }
  return "";
}

void RememberLeader(const std::string& file, const std::string& addresses, const std::string& leader) {
  if (file.empty() || !IsOneWord(addresses) || !IsOneWord(leader)) return;
  std::error_code error;
  // Other commands keep secrets in the folder, so only the user may read it.
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!std::filesystem::exists(folder, error)) {
    // If another user, such as root with this user's HOME, made the folder, the user could not use it.
    struct stat above {};
    if (::stat(folder.parent_path().c_str(), &above) != 0 || above.st_uid != ::geteuid()) return;
    ::mkdir(folder.c_str(), 0700);
  }
  std::string text = absl::StrCat(addresses, " ", leader, "\n");
  int lines = 1;
  for (const auto& [known, before] : ReadEntries(file)) {
    if (known == addresses || lines == kMaxRemembered) continue;
    absl::StrAppend(&text, known, " ", before, "\n");
    ++lines;
  }
  static std::atomic<int> written{0};  // a number for each file, so that two threads never write the same file
  const std::string fresh = absl::StrCat(file, ".", ::getpid(), ".", written++);
  {
    std::ofstream out(fresh, std::ios::trunc);
    out << text;
    out.close();
    if (!out.good()) {
      std::filesystem::remove(fresh, error);
      return;
    }
  }
  std::filesystem::rename(fresh, file, error);
  if (error) std::filesystem::remove(fresh, error);
}

}  // namespace lynx::cli
