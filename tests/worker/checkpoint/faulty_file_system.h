// FaultyFileSystem holds files in memory. When the "machine crashes", it loses what was not synced. It can fail at a chosen
// call, and be full at a chosen size. It keeps two states of every file and folder: the state that programs see, and the state
// on the disk. Only one thread may use it at a time.
#ifndef LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_
#define LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/file_system.h"

namespace lynx::worker {

enum class Fault {
  kFailOnce,  // only this call fails
  // This call and all later calls fail, as for a process that is killed. If possible, this call does half of its work.
  kStop,
};
enum class Unsynced { kLost, kKept };

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem();
  ~FaultyFileSystem() override;

  // Sets the fault. It happens in call number `call` from now on, counted from 1.
  void FailAt(int call, Fault fault);
  // True if the call with the fault has been made.
  bool Failed() const { return fail_at_ > 0 && calls_ >= fail_at_; }
  // Lets the machine crash and start again without faults.
  void Crash(Unsynced unsynced);
  void Heal() { fail_at_ = 0; }
  void SetCapacity(int64_t bytes) { capacity_bytes_ = bytes; }
  int64_t written_bytes() const { return written_bytes_; }
  int64_t read_bytes() const { return read_bytes_; }
  // Makes the disk damage the next file with this name when it is synced.
  void DamageNext(const std::string& name) { damage_ = name; }
  // Returns a file's bytes, so that a test can read or damage them. Crash(kKept) makes the change durable.
  std::string& Content(const std::string& path);

  absl::Status CreateFolders(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;

 private:
  struct Node;
  class OpenWritableFile;
  class OpenReadableFile;
  using NodePtr = std::shared_ptr<Node>;

  // Counts a call. Returns an error if this call must fail.
  absl::Status Begin(const std::string& what);
  NodePtr Find(const std::string& path) const;
  // Returns the folder that contains `path`, and the last part of the path.
  std::pair<NodePtr, std::string> FindParent(const std::string& path) const;

  NodePtr root_;
  int calls_ = 0;
  int fail_at_ = 0;
  Fault fault_ = Fault::kFailOnce;
  int64_t capacity_bytes_ = std::numeric_limits<int64_t>::max();
  int64_t written_bytes_ = 0;
  int64_t read_bytes_ = 0;
  std::string damage_;
};

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_
