#include "cli/output/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/fd.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the limit that the kernel uses too

// The number of the descriptor if the path is one of this process's own descriptors, such as "/dev/stdout" or "/dev/fd/5". If
// such a path were opened by name, the file behind the path would be truncated, and other output in that file would be lost.
std::optional<int> DescriptorOf(absl::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  int fd = -1;
  const bool named = absl::ConsumePrefix(&path, "/dev/fd/") || absl::ConsumePrefix(&path, "/proc/self/fd/");
  return named && absl::SimpleAtoi(path, &fd) && fd >= 0 ? std::optional<int>(fd) : std::nullopt;
}

absl::Status WriteTo(int fd, const std::string& content) {
  for (size_t done = 0; done < content.size();) {
    const ssize_t wrote = ::write(fd, content.data() + done, content.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::UnavailableError(absl::StrCat("it cannot be written whole: ", std::strerror(errno)));
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

// The path to which the links lead. The file there need not exist.
fs::path BehindLinks(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(path, error); ++i) path = path.parent_path() / fs::read_symlink(path, error);
  return path;
}

// Replaces a regular file atomically. If the path is a link, the file that it leads to is replaced. A device, a pipe or a
// descriptor is written in place, because an atomic write would put a file in its place.
absl::Status WriteWhereItIs(const std::string& path, const std::string& content) {
  std::fflush(stdout);  // earlier output must come first
  if (const std::optional<int> fd = DescriptorOf(path); fd.has_value()) return WriteTo(*fd, content);
  std::error_code error;
  const fs::file_status target = fs::status(path, error);
  if (!fs::exists(target) || fs::is_regular_file(target)) return WriteFileDurably(BehindLinks(path).string(), content);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) return absl::UnavailableError(absl::StrCat("it cannot be opened: ", std::strerror(errno)));
  return WriteTo(fd.get(), content);
}

}  // namespace

absl::Status WriteOutput(const std::string& option, const std::string& path, const std::string& content) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", path, ": that is a folder; name a file in it"));
  }
  const absl::Status written = WriteWhereItIs(path, content);
  if (written.ok()) return written;
  return absl::InvalidArgumentError(absl::StrCat(option, " ", path, ": ", std::string(written.message()),
                                                 "; name a file in a folder that exists and that you may write to"));
}

void TellWritten(const std::string& what, const std::string& path, size_t bytes, const std::string& hint) {
  std::fprintf(stderr, "%s: %s, %s; %s\n", what.c_str(), path.c_str(), FormatBytes(Bytes(static_cast<int64_t>(bytes))).c_str(),
               hint.c_str());
}

absl::Status WriteTrace(const std::string& option, const std::string& path, const ChromeTraceText& trace, Nanos length) {
  LYNX_RETURN_IF_ERROR(WriteOutput(option, path, trace.json));
  TellWritten("trace", path, trace.json.size(),
              trace.end >= length
                  ? "open it in ui.perfetto.dev"
                  : absl::StrCat("it tells the first ", FormatDuration(trace.end), " of ", FormatDuration(length),
                                 ", as many actions as viewers bear; open it in ui.perfetto.dev"));
  return absl::OkStatus();
}

}  // namespace lynx::cli
