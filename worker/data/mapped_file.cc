#include "worker/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/status.h"

namespace lynx::worker {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: if the path is a named pipe by mistake, open must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open data file ", path));
  struct stat info = {};
  absl::Status status;
  if (::fstat(fd, &info) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot examine data file ", path));
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file: data.path must name a data file"));
  } else if (info.st_size == 0) {
    status = absl::InvalidArgumentError(absl::StrCat(path, " is empty: data.path must name a file that holds data"));
  }
  MappedFile file;
  if (status.ok()) {
    const auto size = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      status = absl::ErrnoToStatus(errno, absl::StrCat("cannot map the ", size, " bytes of data file ", path));
    } else {
      file.path_ = path;
      file.bytes_ = {static_cast<const std::byte*>(address), size};
    }
  }
  ::close(fd);  // The mapping stays valid without the descriptor.
  if (!status.ok()) return status;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace lynx::worker
