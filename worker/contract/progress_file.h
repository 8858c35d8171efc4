// ProgressFile tells the worker daemon how far a rank without peers has come (rank_progress.h). A rank with peers tells them,
// with its signs of life. The rank writes the file and the daemon reads it, so it outlives a daemon that is restarted. The file
// is empty if the rank could not write it, which says nothing about the rank. Thread-safe; only one process writes.
#ifndef LYNX_WORKER_CONTRACT_PROGRESS_FILE_H_
#define LYNX_WORKER_CONTRACT_PROGRESS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/fd.h"
#include "common/units.h"

namespace lynx {

// The values of RankProgress at one time.
struct ToldProgress {
  int64_t made = 0;
  Nanos quiet;
  bool operator==(const ToldProgress&) const = default;
};

class ProgressFile {
 public:
  // The rank calls it. Creates the file if it does not exist, and empties it.
  static absl::StatusOr<ProgressFile> OpenToWrite(const std::string& path);
  // Replaces what the file tells. If the disk takes no bytes, empties the file.
  void Tell(const ToldProgress& progress) const;

 private:
  explicit ProgressFile(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// The daemon calls it. Returns nullopt if there is no such file, or if it tells nothing.
std::optional<ToldProgress> ReadToldProgress(const std::string& path);

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_PROGRESS_FILE_H_
