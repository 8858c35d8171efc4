// What wakes a daemon's owner thread from poll(2): an event that other threads raise, and the signals that ask it to
// end.
#ifndef LYNX_NODE_WAKE_H_
#define LYNX_NODE_WAKE_H_

#include <optional>

#include "node/fd.h"

namespace lynx {

// An eventfd. Raise: any thread. Readable until Clear.
class WakeEvent {
 public:
  WakeEvent();
  void Raise();
  void Clear();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// SIGTERM and SIGINT as a descriptor. Construct before any other thread exists: it blocks both for the process,
// ignores SIGPIPE, and every later thread inherits that.
class StopSignals {
 public:
  StopSignals();
  int fd() const { return fd_.get(); }
  // The signal that came, if one did. Does not block.
  std::optional<int> Take();

 private:
  UniqueFd fd_;
};

}  // namespace lynx

#endif  // LYNX_NODE_WAKE_H_
