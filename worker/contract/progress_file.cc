#include "worker/contract/progress_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

using Content = std::array<int64_t, 2>;  // in the byte order of the machine, on which both processes run

}  // namespace

absl::StatusOr<ProgressFile> ProgressFile::OpenToWrite(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.valid()) return ProgressFile(std::move(fd));
  return absl::InvalidArgumentError(absl::StrCat("cannot open the progress file ", path, ": ", std::string(::strerror(errno))));
}

void ProgressFile::Tell(const ToldProgress& progress) const {
  const Content content = {progress.made, progress.quiet.value};
  if (::pwrite(fd_.get(), content.data(), sizeof(content), 0) == static_cast<ssize_t>(sizeof(content))) return;
  // An old value would look like a rank that hangs. If this fails too, nothing else can be done.
  [[maybe_unused]] const int emptied = ::ftruncate(fd_.get(), 0);
}

std::optional<ToldProgress> ReadToldProgress(const std::string& path) {
  // The rank may run as another user, who owns the file. The flags keep the daemon from following a link and from waiting for
  // the other end of a pipe.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  Content content;
  if (!fd.valid() || ::pread(fd.get(), content.data(), sizeof(content), 0) != static_cast<ssize_t>(sizeof(content))) {
    return std::nullopt;
  }
  return ToldProgress{.made = content[0], .quiet = Nanos(content[1])};
}

}  // namespace lynx
