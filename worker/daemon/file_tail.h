// FileTail reads the lines that another process appends to a file. It does not return the last line until the line is complete.
// Each read opens the file again, so the file may be created later. Not thread-safe.
#ifndef LYNX_WORKER_DAEMON_FILE_TAIL_H_
#define LYNX_WORKER_DAEMON_FILE_TAIL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lynx::worker {

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}

  // Returns the next complete lines, without their line ends. Reads at most `limit_bytes` of the file. Cuts lines that are
  // longer than kMaxLineBytes.
  std::vector<std::string> Read(int64_t limit_bytes);
  // Returns how many bytes of the file have not been read yet.
  int64_t Unread() const;
  // True if the file had unread bytes in the last Read but could not be opened or read. The error may be permanent.
  bool stuck() const { return stuck_; }
  // Skips to `keep_bytes` before the file's end, unless the reader is already beyond that position. If it skips bytes, it also
  // drops the incomplete line. Returns the number of skipped bytes.
  int64_t SkipTo(int64_t keep_bytes);
  // Returns the incomplete last line and forgets it. Call it after the writing process has ended.
  std::string TakeRest();

  static constexpr int64_t kMaxLineBytes = 1 << 20;

 private:
  const std::string path_;
  int64_t offset_ = 0;
  std::string partial_;
  bool stuck_ = false;
};

// Returns the last `limit_bytes` of a file, or "" if the file cannot be read.
std::string FileEnd(const std::string& path, int64_t limit_bytes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_FILE_TAIL_H_
