// LeaseFile holds the time until which the ranks of a node may run (node/lease.h). The worker daemon writes it and every rank
// reads it. They share it through a file that is mapped into memory, because the ranks must end in time even if the daemon has
// ended. Times are on the clock BootTime (common/clock.h). A value from an earlier boot of the machine counts as Forever.
// Thread-safe; only one process writes.
#ifndef LYNX_WORKER_CONTRACT_LEASE_FILE_H_
#define LYNX_WORKER_CONTRACT_LEASE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

class LeaseFile {
 public:
  // The daemon calls it. Creates the file if it does not exist.
  static absl::StatusOr<LeaseFile> OpenToWrite(const std::string& path);
  // A rank calls it. Returns NotFound if the file does not exist, and DataLoss if it is not a lease file.
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
