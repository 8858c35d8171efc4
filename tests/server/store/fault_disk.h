// FaultDisk holds files in memory, behind SQLite's interface to the operating system. These files fail like disks and machines.
// While a FaultDisk lives, it is SQLite's default, so every database that is opened is on it. Only one may exist at a time, and
// only one thread may use it.
//
// It keeps two states of a file: what programs read, and what is durable. A sync makes durable what programs read. If a sync
// fails, all changes since the previous sync are lost, as on Linux: a later sync does not make them durable, although programs
// still read them. After a power failure, each write that was not synced is complete, or missing, or has only its first
// sectors.
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
  kShortWrite,  // a write writes half of its bytes; then EIO, as for every other operation
  kFull,        // ENOSPC
};

class FaultDisk {
 public:
  using Files = std::map<std::string, std::string>;  // path -> bytes

  explicit FaultDisk(const Files& files = {});
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  // Makes operation number n fail (1 = the next one). With `lasting` all later operations fail too. With kFull only operations
  // that need space fail.
  void FailAt(int64_t n, DiskFault fault, bool lasting);
  int64_t operations() const { return operations_; }
  bool failed() const { return failed_; }
  // Limits the size of all files together. A write beyond this size fails with ENOSPC.
  void SetCapacity(int64_t bytes) { capacity_ = bytes; }
  int64_t bytes() const;

  // Returns the files as they are after the program was killed.
  Files AfterKill() const;
  // Returns the files as they are after a power failure. The same seed gives the same files.
  Files AfterPowerFailure(uint64_t seed) const;

 private:
  // A write. With `truncates` it is a truncation to `offset`.
  struct Change {
    int64_t offset = 0;
    bool truncates = false;
    std::string bytes;
  };
  struct Content {
    std::string read;  // the content that programs read
    std::string durable;
    std::vector<Change> unsynced;
    bool created = false;  // true: was synced or there from the beginning, so it survives a power failure
  };
  struct Handle;  // SQLite's state of an open file

  static FaultDisk* Of(sqlite3_vfs* vfs) { return static_cast<FaultDisk*>(vfs->pAppData); }
  static Content& ContentOf(sqlite3_file* file);
  static FaultDisk& DiskOf(sqlite3_file* file);
  static void Apply(const Change& change, std::string& bytes);

  // True if this operation must fail; then errno_ is set.
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
