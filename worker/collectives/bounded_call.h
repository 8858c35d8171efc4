// BoundedCall runs a call that blocks and cannot be interrupted on a thread of its own, so that the caller waits for it only as
// long as it wants. NCCL has such calls: the one that makes a communicator returns when all members have come.
//
// If the caller stops waiting, the call is left behind: its thread stays inside the library. A process in which a call was left
// behind must end by _exit, because the library may crash if its memory is freed at the end of the process.
#ifndef LYNX_WORKER_COLLECTIVES_BOUNDED_CALL_H_
#define LYNX_WORKER_COLLECTIVES_BOUNDED_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"

namespace lynx::worker {

class BoundedCall {
 public:
  // Starts the call. If it succeeds, but Wait has not returned its success before this object ends, `undo` is called: by the
  // destructor, or by the call's thread if the call was left behind. Both functions may outlive this object, so they must own
  // what they use.
  BoundedCall(std::function<absl::Status()> call, std::function<void()> undo);
  // Leaves the call behind if it has not ended.
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  // Waits until the call has ended, and returns its status. If `stop` returns an error before, returns that error. `stop` is
  // called now and then by this thread. Call Wait once or more, on one thread.
  absl::Status Wait(const std::function<absl::Status()>& stop);

  // Returns the number of calls of this process that were left behind and have not ended since. Thread-safe.
  static int64_t LeftBehind();

 private:
  struct State;

  const std::shared_ptr<State> state_;
  std::thread thread_;
  bool told_ = false;  // Wait has returned the call's status
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_BOUNDED_CALL_H_
