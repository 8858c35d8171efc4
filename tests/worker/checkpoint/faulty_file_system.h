// FaultyFileSystem: files in memory that lose what was not synced when the machine "crashes", fail at a chosen call
// and fill up at a chosen size. It keeps two pictures of every file and folder: what programs see, and what the disk
// has. One thread at a time.
#ifndef LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_
#define LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/file_system.h"

namespace lynx {

enum class Fault {
  kFailOnce,  // the call fails, later ones do not
  kStop,      // the call, half done where it can be, and all later ones fail, as for a process that is killed
};
enum class Unsynced { kLost, kKept };

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem();
  ~FaultyFileSystem() override;

  // The `call`-th call from now, counted from 1, suffers the fault.
  void FailAt(int call, Fault fault);
  // Whether that call has come.
  bool Failed() const { return fail_at_ > 0 && calls_ >= fail_at_; }
  // The machine comes up again, without faults.
  void Crash(Unsynced unsynced);
  void Heal() { fail_at_ = 0; }
  void SetCapacity(int64_t bytes) { capacity_bytes_ = bytes; }
  int64_t written_bytes() const { return written_bytes_; }
  int64_t read_bytes() const { return read_bytes_; }
  // The disk damages the next file of that name when it is synced.
  void DamageNext(const std::string& name) { damage_ = name; }
  // A file's bytes, to look at or to damage, on the disk too by Crash(kKept).
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

  // Counts a call. Not OK when it is to fail.
  absl::Status Begin(const std::string& what);
  NodePtr Find(const std::string& path) const;
  // The folder that holds `path`, and the last part of it.
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

}  // namespace lynx

#endif  // LYNX_TESTS_WORKER_CHECKPOINT_FAULTY_FILE_SYSTEM_H_
