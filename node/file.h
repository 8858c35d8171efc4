// Files that outlive their process: durable writes, whole reads, and the lock that keeps a second daemon off a data
// directory. Free functions; thread-safe for different paths.
#ifndef LYNX_NODE_FILE_H_
#define LYNX_NODE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/fd.h"

namespace lynx {

// Makes the directory and those above it.
absl::Status MakeDirectories(const std::string& path);

// Replaces the file as a whole: written beside it, fsynced, renamed, and the directory fsynced. After a crash the
// file is the old or the new one. `mode`: its permissions, less the umask. ResourceExhausted on a full disk, DataLoss on one
// that fails, FailedPrecondition where a device, a pipe or a folder is: that stays; every error names the file.
absl::Status WriteFileDurably(const std::string& path, const std::string& content, mode_t mode = 0644);

// NotFound when it is not there; ResourceExhausted when it is longer than `limit_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes = 64 << 20);

// The last lines of a text, such as a log, however long it is: at most so many, and none that begins before its last 64 KiB. ""
// where it cannot be read.
std::string LastLines(const std::string& path, size_t lines);

// Takes an exclusive lock on the file, made if need be; it holds as long as the descriptor is open, and no child
// inherits it. FailedPrecondition when another process holds it: names that process, whose id it wrote into the file
// (unless the disk was full: the lock holds all the same).
absl::StatusOr<UniqueFd> LockFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_NODE_FILE_H_
