// FaultDisk: files in memory behind SQLite's interface to the operating system. They fail as disks and machines do. While a
// FaultDisk lives it is SQLite's default: every database that is opened is on it. Only one may exist at a time, and only one
// thread may use it.
//
// It keeps two states of a file: what programs read, and what is durable. A sync makes what programs read durable. If a
// sync fails, everything since the previous sync is lost, as on Linux: a later sync does not make it durable, though
// programs still read it. After a power failure each write that was not synced is there completely, not at all, or with
// only its first sectors.
#ifndef LYNX_TESTS_SERVER_STORE_FAULT_DISK_H_
#define LYNX_TESTS_SERVER_STORE_FAULT_DISK_H_

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace lynx::server {

enum class DiskFault {
  kError,       // EIO
  kShortWrite,  // half of the bytes are written, then EIO
  kFull,        // ENOSPC
};

class FaultDisk {
 public:
  using Files = std::map<std::string, std::string>;  // path -> bytes

  explicit FaultDisk(const Files& files = {});
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  // The n-th operation (1 = the next) fails; with `lasting` all later ones fail too. kFull fails only operations that
  // take space.
  void FailAt(int64_t n, DiskFault fault, bool lasting);
  int64_t operations() const { return operations_; }
  bool failed() const { return failed_; }
  // The size of all files together. A write beyond it fails with ENOSPC.
  void SetCapacity(int64_t bytes) { capacity_ = bytes; }
  int64_t bytes() const;

  // The files after the program was killed.
  Files AfterKill() const;
  // The files after a power failure; the same seed gives the same files.
  Files AfterPowerFailure(uint64_t seed) const;

 private:
  // A write, or a truncation to `offset` if `bytes` is absent.
  struct Change {
    int64_t offset = 0;
    bool truncates = false;
    std::string bytes;
  };
  struct Content {
    std::string read;  // what programs see
    std::string durable;
    std::vector<Change> unsynced;
    bool created = false;  // exists after a power failure
  };
  struct Handle;  // SQLite's state of an open file

  static FaultDisk* Of(sqlite3_vfs* vfs) { return static_cast<FaultDisk*>(vfs->pAppData); }
  static Content& ContentOf(sqlite3_file* file);
  static FaultDisk& DiskOf(sqlite3_file* file);
  static void Apply(const Change& change, std::string& bytes);

  // True if this operation fails; then errno_ is set.
  bool Fails(bool takes_space);
  int Write(Content& content, const std::string& bytes, int64_t offset);
  void DescribeFiles();
  void DescribeDisk();

  std::map<std::string, std::shared_ptr<Content>> files_;
  int64_t operations_ = 0;
  int64_t fail_at_ = 0;
  DiskFault fault_ = DiskFault::kError;
  bool lasting_ = false;
  bool failed_ = false;
  int errno_ = 0;  // set by the last operation that failed
  int64_t capacity_ = INT64_MAX;
  int64_t unnamed_ = 0;
  std::mt19937 random_;
  sqlite3_vfs* before_;
  sqlite3_vfs vfs_{};
  sqlite3_io_methods methods_{};
};

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_STORE_FAULT_DISK_H_
