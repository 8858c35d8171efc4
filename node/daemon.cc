#include "node/daemon.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <random>
#include <system_error>

#include "absl/synchronization/mutex.h"
#include "common/status.h"

namespace lynx {
namespace {

constexpr size_t kMaxNodeName = 63;

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'; }

}  // namespace

void StopWatchingLockOrder() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

std::string DefaultNodeName() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  std::string text = std::string(name).substr(0, kMaxNodeName);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !IsNameCharacter(c); }, '-');
  return text.empty() ? "node" : text;
}

absl::Status CheckNodeName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxNodeName && std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--node '", name, "' is not a node name; use 1 to 63 letters, digits, '.', '_' and '-'"));
}

absl::Status CheckNumericAddress(const std::string& address, const std::string& flag) {
  in6_addr parsed;
  if (::inet_pton(AF_INET, address.c_str(), &parsed) == 1 || ::inet_pton(AF_INET6, address.c_str(), &parsed) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, " '", address, "' is not an address in numbers such as 10.0.0.7"));
}

std::string BesideThisBinary(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : (self.parent_path() / name).string();
}

absl::Status CheckExecutable(const std::string& path, const std::string& flag) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return absl::NotFoundError(absl::StrCat("there is no file ", path, "; give the right one with ", flag));
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " may not be executed; see its permissions, or give another one with ", flag));
  }
  return absl::OkStatus();
}

std::string NewBootId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

}  // namespace lynx
