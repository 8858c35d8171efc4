// Cancellation: requests to end the rank, at once or when a step is done.
//
// At once: SIGTERM (or SIGINT). A separate thread waits for the signal and aborts the communicator. This wakes the rank's
// compute thread and tells every peer. If the compute thread does not end within a grace time (it may be in a long product, or
// writing to a slow disk), the process exits. A checkpoint is either whole or invisible, so this leaves no half-written
// checkpoint.
//
// When a step is done: a file beside the rank's configuration. The request survives the process that made it, and can be
// withdrawn. The rank looks for the file between steps; all ranks then agree on the step after which they give way.
//
// The signals must be blocked in every thread, also in threads that libraries start before main: see BlockStopSignals.
// Thread-safe.
#ifndef LYNX_WORKER_RANK_PEERS_CANCELLATION_H_
#define LYNX_WORKER_RANK_PEERS_CANCELLATION_H_

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "worker/collectives/communicator.h"

namespace lynx::worker {

enum class BlockResult : uint8_t { kBlocked, kWereBlocked };
// Blocks SIGTERM and SIGINT in the calling thread, in the threads that it starts from now on, and in the program that this
// process may become (execv). kWereBlocked: they were blocked already.
BlockResult BlockStopSignals();

class Cancellation {
 public:
  // Create it only after BlockStopSignals has returned kWereBlocked. `yield_file`: if this file exists, the rank is asked to
  // give way; empty: there is no such file.
  explicit Cancellation(std::string yield_file = "");
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  bool requested() const { return requested_; }
  // True if the rank is asked to give way when a step is done.
  bool YieldRequested() const;

  // Sets the communicator to abort. Call it with nullptr before the communicator is destroyed. While no communicator is set, a
  // request ends the process at once with kRankExitCancelled. If a request came earlier, this call aborts the communicator now.
  void Attach(Communicator* communicator);

 private:
  void Watch();

  const std::string yield_file_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::atomic<bool> requested_ = false;
  std::mutex mutex_;
  Communicator* communicator_ = nullptr;  // guarded by mutex_
  std::thread watcher_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_CANCELLATION_H_
