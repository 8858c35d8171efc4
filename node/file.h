// Files that outlive their process: durable writes, reading whole files, and the lock that keeps a second daemon away from a
// data directory. Free functions; thread-safe for different paths.
#ifndef LYNX_NODE_FILE_H_
#define LYNX_NODE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"

namespace lynx {

// Creates the directory and its missing parents.
absl::Status MakeDirectories(const std::string& path);

// Replaces the whole file: writes a new file next to it, fsyncs and renames it, and fsyncs the directory. After a crash, the
// path has either the whole old file or the whole new file. `mode`: permissions of the file; the umask removes some of them.
// ResourceExhausted: the disk is full. DataLoss: the disk fails. FailedPrecondition: the path is a device, a pipe or a
// directory, which is left as it is. Every error names the file.
absl::Status WriteFileDurably(const std::string& path, const std::string& content, mode_t mode = 0644);

// Returns the content of the file. NotFound: there is no such file. ResourceExhausted: it is longer than `limit_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes = 64 << 20);

// The last lines of a text file of any length, such as a log: at most `lines` lines, and only lines that begin within its last
// 64 KiB. Empty if it cannot be read.
std::string LastLines(const std::string& path, size_t lines);

// Takes an exclusive lock on the file, and creates the file if necessary. The lock is held as long as the descriptor is open;
// child processes do not inherit it. FailedPrecondition: another process holds the lock. The error names that process, because
// it wrote its id into the file. (If the disk was full, the id is missing, but the lock still holds.)
absl::StatusOr<UniqueFd> LockFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_NODE_FILE_H_
