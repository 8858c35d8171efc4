// FaultyFileSystem: files in memory that lose what was not synced when the machine "crashes", that fail at a chosen
// call, and that fill up at a chosen size. It keeps two states of every file and folder: what programs see, and what is
// on the disk. One thread at a time.
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
  kStop,      // this call (half done if possible) and all later ones fail, as for a process that is killed
};
enum class Unsynced { kLost, kKept };

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem();
  ~FaultyFileSystem() override;

  // The fault happens in the `call`-th call from now, counted from 1.
  void FailAt(int call, Fault fault);
  // True if that call has been made.
  bool Failed() const { return fail_at_ > 0 && calls_ >= fail_at_; }
  // The machine crashes and starts again without faults.
  void Crash(Unsynced unsynced);
  void Heal() { fail_at_ = 0; }
  void SetCapacity(int64_t bytes) { capacity_bytes_ = bytes; }
  int64_t written_bytes() const { return written_bytes_; }
  int64_t read_bytes() const { return read_bytes_; }
  // The disk damages the next file with that name when it is synced.
  void DamageNext(const std::string& name) { damage_ = name; }
  // A file's bytes, to inspect or to damage; Crash(kKept) makes the change durable.
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

  // Counts a call. Returns an error if the call must fail.
  absl::Status Begin(const std::string& what);
  NodePtr Find(const std::string& path) const;
  // The folder that contains `path`, and the last part of the path.
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
