// FaultDisk: files in memory behind SQLite's interface to the operating system, failing as disks and machines do. While one
// lives it is SQLite's default: every database that is opened is on it. One at a time; one thread.
//
// It keeps two states of a file: what a program reads, and what is durable. A sync makes the first the second. One that
// fails has lost what was written since the one before, as Linux does: a later sync does not bring that back, though
// programs still read it. A power failure leaves of each write that was not synced all, nothing or its first
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

namespace lynx {

enum class DiskFault {
  kError,       // EIO
  kShortWrite,  // half of what is to be written is, then EIO
  kFull,        // ENOSPC
};

class FaultDisk {
 public:
  using Files = std::map<std::string, std::string>;  // path -> bytes

  explicit FaultDisk(const Files& files = {});
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  // The n-th operation (1 = the next) fails; with `lasting` all after it, too. Only what takes space runs out of it.
  void FailAt(int64_t n, DiskFault fault, bool lasting);
  int64_t operations() const { return operations_; }
  bool failed() const { return failed_; }
  // The size of all files together. A write beyond it fails with ENOSPC.
  void SetCapacity(int64_t bytes) { capacity_ = bytes; }
  int64_t bytes() const;

  // What is there after the program was killed.
  Files AfterKill() const;
  // What is there after the machine lost its power; the same for the same seed.
  Files AfterPowerFailure(uint64_t seed) const;

 private:
  // A write or, where bytes are absent, a truncation to `offset`.
  struct Change {
    int64_t offset = 0;
    bool truncates = false;
    std::string bytes;
  };
  struct Content {
    std::string read;  // what programs see
    std::string durable;
    std::vector<Change> unsynced;
    bool created = false;  // is there after a power failure
  };
  struct Handle;  // what SQLite has of an open file

  static FaultDisk* Of(sqlite3_vfs* vfs) { return static_cast<FaultDisk*>(vfs->pAppData); }
  static Content& ContentOf(sqlite3_file* file);
  static FaultDisk& DiskOf(sqlite3_file* file);
  static void Apply(const Change& change, std::string& bytes);

  // Whether this operation fails, and with errno_ set.
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
  int errno_ = 0;  // of the last operation that failed
  int64_t capacity_ = INT64_MAX;
  int64_t unnamed_ = 0;
  std::mt19937 random_;
  sqlite3_vfs* before_;
  sqlite3_vfs vfs_{};
  sqlite3_io_methods methods_{};
};

}  // namespace lynx

#endif  // LYNX_TESTS_SERVER_STORE_FAULT_DISK_H_
