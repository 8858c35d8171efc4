#include "worker/copies/copies_directory.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/digest.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kMemory[] = "/dev/shm";
constexpr size_t kNameDigits = 16;
constexpr mode_t kForTheUserAlone = 0700;

}  // namespace

std::string DefaultCopiesDirectory(const std::string& data_directory) {
  return absl::StrCat(kMemory, "/lynx-copies-", Sha256Hex(data_directory).substr(0, kNameDigits));
}

absl::Status MakeCopiesDirectory(const std::string& directory) {
  std::error_code error;
  fs::create_directories(fs::path(directory).parent_path(), error);
  struct stat found {};
  if ((::mkdir(directory.c_str(), kForTheUserAlone) != 0 && errno != EEXIST) || ::lstat(directory.c_str(), &found) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make ", directory, ": ", std::strerror(errno)));
  }
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(directory, " is not a directory of this user"));
  }
  return absl::OkStatus();
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<JobId> JobsWithCopies(const std::string& directory) {
  std::vector<JobId> jobs;
  for (const std::string& name : NamesIn(directory)) jobs.push_back(JobId(name));
  return jobs;
}

void RemoveCopies(const std::string& directory, const JobId& job) {
  std::error_code error;
  fs::remove_all(fs::path(directory) / job.value, error);
}

}  // namespace lynx::worker
