// LeaseFile: until when the ranks of a node may go on (node/lease.h), a number that the worker daemon writes and every rank
// reads, in memory that they share through a file: the ranks must end in time even if the daemon is gone. Times are of BootTime
// (common/clock.h). What an earlier boot of the machine left counts as Forever. Thread-safe; one process writes.
#ifndef LYNX_WORKER_CONTRACT_LEASE_FILE_H_
#define LYNX_WORKER_CONTRACT_LEASE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

class LeaseFile {
 public:
  // For the daemon: made if it is not there.
  static absl::StatusOr<LeaseFile> OpenToWrite(const std::string& path);
  // For a rank. NotFound when it is not there, DataLoss when it is not such a file.
  static absl::StatusOr<LeaseFile> OpenToRead(const std::string& path);
  LeaseFile(LeaseFile&& other) noexcept;
  LeaseFile& operator=(LeaseFile&& other) = delete;
  ~LeaseFile();

  void Set(Nanos deadline);
  Nanos Deadline() const;

 private:
  struct Shared;
  explicit LeaseFile(Shared* shared) : shared_(shared) {}
  Shared* shared_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_LEASE_FILE_H_
