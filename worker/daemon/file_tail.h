// FileTail: reads the lines that another process appends to a file. The last line is not returned until it is complete. Not
// thread-safe. Each read opens the file again, so the file may be created later.
#ifndef LYNX_WORKER_DAEMON_FILE_TAIL_H_
#define LYNX_WORKER_DAEMON_FILE_TAIL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lynx::worker {

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}

  // The next complete lines, without their line ends. Reads at most `limit_bytes` of the file. A line that is longer than
  // kMaxLineBytes is cut at that length.
  std::vector<std::string> Read(int64_t limit_bytes);
  // How many bytes of the file have not been read yet.
  int64_t Unread() const;
  // True if in the last Read the file had unread bytes but could not be opened or read. This may never change.
  bool stuck() const { return stuck_; }
  // Continues at `keep_bytes` before the file's end, or at the present position if that is later, and drops the incomplete
  // line. Returns the number of skipped bytes.
  int64_t SkipTo(int64_t keep_bytes);
  // Returns the incomplete last line and forgets it. Call it when the writer has ended.
  std::string TakeRest();

  static constexpr int64_t kMaxLineBytes = 1 << 20;

 private:
  const std::string path_;
  int64_t offset_ = 0;
  std::string partial_;
  bool stuck_ = false;
};

// The last `limit_bytes` of a file; "" when it cannot be read.
std::string FileEnd(const std::string& path, int64_t limit_bytes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_FILE_TAIL_H_
