// Wakes a daemon's owner thread from poll(2): WakeEvent, which other threads raise, and StopSignals, for the signals that ask
// the daemon to end.
#ifndef LYNX_NODE_WAKE_H_
#define LYNX_NODE_WAKE_H_

#include <optional>

#include "common/fd.h"

namespace lynx {

// An eventfd. Any thread may call Raise; then the descriptor is readable until Clear.
class WakeEvent {
 public:
  WakeEvent();
  void Raise();
  void Clear();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// The signals SIGTERM and SIGINT as a descriptor. The constructor blocks both signals and ignores SIGPIPE. Construct it before
// any other thread exists, because later threads inherit the blocked signals.
class StopSignals {
 public:
  StopSignals();
  int fd() const { return fd_.get(); }
  // Returns the signal that came, if any. Does not block.
  std::optional<int> Take();

 private:
  UniqueFd fd_;
};

}  // namespace lynx

#endif  // LYNX_NODE_WAKE_H_
