#include "worker/contract/lease_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr char kMagic[8] = {'l', 'y', 'n', 'x', 'l', 's', 'e', '1'};
constexpr size_t kBootIdBytes = 36;

// Returns the id of the system's present boot. If the id cannot be read, returns "", so that all boots count as the same boot.
std::string SystemBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.substr(0, kBootIdBytes);
}

absl::Status Failure(const std::string& path, const char* what) {
  const int error = errno;
  return absl::Status(error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInternal,
                      absl::StrCat("cannot ", what, " ", path, ": ", std::string(::strerror(error))));
}

}  // namespace

struct LeaseFile::Shared {
  char magic[8];
  char boot[40];
  std::atomic<int64_t> deadline;
};

absl::StatusOr<LeaseFile> LeaseFile::OpenToWrite(const std::string& path) {
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Failure(path, "make");
  // Allocates the blocks of the file before they are mapped. So a full disk is an error here, and not a signal later.
  const int filled = ::posix_fallocate(fd, 0, sizeof(Shared));
  errno = filled;
  void* memory = filled == 0 ? ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    const absl::Status failure = Failure(path, "map");
    ::close(fd);
    return failure;
  }
  ::close(fd);
  auto* shared = static_cast<Shared*>(memory);
  const std::string boot = SystemBootId();
  if (::memcmp(shared->magic, kMagic, sizeof(kMagic)) != 0 ||
      ::strncmp(shared->boot, boot.c_str(), sizeof(shared->boot)) != 0) {
    shared->deadline = INT64_MAX;
    ::strncpy(shared->boot, boot.c_str(), sizeof(shared->boot) - 1);
    ::memcpy(shared->magic, kMagic, sizeof(kMagic));
  }
  return LeaseFile(shared);
}

absl::StatusOr<LeaseFile> LeaseFile::OpenToRead(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failure(path, "open");
  struct stat found {};
  const bool whole = ::fstat(fd, &found) == 0 && found.st_size >= static_cast<off_t>(sizeof(Shared));
  void* memory = whole ? ::mmap(nullptr, sizeof(Shared), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  ::close(fd);
  if (memory == MAP_FAILED) return absl::DataLossError(absl::StrCat(path, " is not a lease file: the worker daemon writes it"));
  LeaseFile file(static_cast<Shared*>(memory));
  if (::memcmp(file.shared_->magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError(absl::StrCat(path, " is not a lease file: the worker daemon writes it"));
  }
  return file;
}

LeaseFile::LeaseFile(LeaseFile&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}

LeaseFile::~LeaseFile() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

void LeaseFile::Set(Nanos deadline) { shared_->deadline.store(deadline.value, std::memory_order_relaxed); }
Nanos LeaseFile::Deadline() const { return Nanos(shared_->deadline.load(std::memory_order_relaxed)); }

}  // namespace lynx
