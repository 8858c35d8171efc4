// FileTail: reads the lines that another process appends to a file. A last line without its end waits until it is
// complete. Not thread-safe; opens the file anew for each read, so it may appear late.
#ifndef LYNX_WORKER_DAEMON_FILE_TAIL_H_
#define LYNX_WORKER_DAEMON_FILE_TAIL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lynx {

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}

  // The next complete lines, without their ends, from at most `limit_bytes` of the file. A line that is longer than
  // kMaxLineBytes is cut there.
  std::vector<std::string> Read(int64_t limit_bytes);
  // Bytes of the file that have not been read, now.
  int64_t Unread() const;
  // The last Read found something, but the file could not be opened or read: it may be so for ever.
  bool stuck() const { return stuck_; }
  // Goes on at `keep_bytes` before the file's end, or where it is if that is further; drops the incomplete line.
  // Returns the bytes that were passed over.
  int64_t SkipTo(int64_t keep_bytes);
  // The incomplete last line, and forgets it: for a writer that has ended.
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

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_FILE_TAIL_H_
