#include "cli/output/waiting_line.h"

#include <sys/ioctl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/output/render.h"

namespace lynx::cli {
namespace {

constexpr std::chrono::milliseconds kRedraw{250};
constexpr size_t kNarrowTerminal = 80;  // used if the terminal does not say how wide it is
constexpr const char* kWipe = "\r\033[K";

size_t WidthOf(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kNarrowTerminal;
}

// Ignores errors of writing: the line is only for people to look at.
void Write(int fd, const std::string& text) {
  if (write(fd, text.data(), text.size()) < 0) return;
}

}  // namespace

WaitingLine::WaitingLine(std::string verb, int fd, std::chrono::milliseconds delay)
    : verb_(std::move(verb)), fd_(fd), delay_(delay) {
  if (IsTerminal(fd)) drawer_ = std::thread([this] { Draw(); });
}

WaitingLine::~WaitingLine() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  if (drawer_.joinable()) drawer_.join();
}

void WaitingLine::At(const std::string& part) {
  const std::lock_guard lock(mutex_);
  part_ = part;
}

std::string WaitingLine::Text() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began_);
  const std::string text = absl::StrCat(verb_, part_.empty() ? "" : ": ", part_, " (", seconds.count(), " s)");
  return text.substr(0, WidthOf(fd_) - 1);  // a wrapped line could not be erased
}

void WaitingLine::Draw() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, delay_, [&] { return ended_; })) return;
  do {
    Write(fd_, kWipe + Text());
  } while (!changed_.wait_for(lock, kRedraw, [&] { return ended_; }));
  Write(fd_, kWipe);
}

}  // namespace lynx::cli
