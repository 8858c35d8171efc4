// WaitingLine: shows on a terminal that a command is still computing. After two seconds, a line on standard error says what
// the command is doing and for how long. The line is erased at the end. Nothing is written if standard error is not a
// terminal.
//
// Thread-safe; a thread of its own draws.
#ifndef LYNX_CLI_OUTPUT_WAITING_LINE_H_
#define LYNX_CLI_OUTPUT_WAITING_LINE_H_

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lynx::cli {

class WaitingLine {
 public:
  static constexpr std::chrono::milliseconds kDelay{2000};

  // `verb`: what the command does: "planning". The caller keeps ownership of `fd`.
  explicit WaitingLine(std::string verb, int fd = STDERR_FILENO, std::chrono::milliseconds delay = kDelay);
  ~WaitingLine();
  WaitingLine(const WaitingLine&) = delete;
  WaitingLine& operator=(const WaitingLine&) = delete;

  // Sets what the command works on from now on: "layouts with tp 8, pp 16".
  void At(const std::string& part);

 private:
  void Draw();
  // The current text of the line. The caller must hold the lock.
  std::string Text() const;

  const std::string verb_;
  const int fd_;
  const std::chrono::milliseconds delay_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string part_;    // guarded by mutex_
  bool ended_ = false;  // guarded by mutex_
  std::thread drawer_;  // not started if there is no terminal
};

// Runs `work` with a waiting line and returns its result. `work` gets a function that updates the line.
template <class Work>
auto WithWaitingLine(const std::string& verb, const Work& work) {
  WaitingLine line(verb);
  return work([&](const std::string& part) { line.At(part); });
}

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_WAITING_LINE_H_
