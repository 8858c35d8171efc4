// Cancellation: requests to end the rank, at once or when a step is done.
//
// At once: SIGTERM (or SIGINT). A thread of its own waits for the signal
// and aborts the communicator, which wakes this rank's compute thread and tells every peer. Should the compute thread
// not come out within a grace time (it may be in a long product, or writing to a slow disk), the process exits there
// and then: a checkpoint is either whole or invisible, so nothing is torn.
//
// When a step is done: a file that stands beside the rank's configuration, so that the request survives whoever made it and
// may be taken back. The rank looks between steps; all ranks then agree on the step after which they give way.
//
// Every thread must have the signals blocked, also those that libraries start before main: see BlockStopSignals.
// Thread-safe.
#ifndef LYNX_WORKER_RANK_PEERS_CANCELLATION_H_
#define LYNX_WORKER_RANK_PEERS_CANCELLATION_H_

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "worker/collectives/communicator.h"

namespace lynx {

enum class BlockResult : uint8_t { kBlocked, kWereBlocked };
// Blocks SIGTERM and SIGINT in the calling thread, in those that it starts from now on, and in the program that this
// process may become (execv). kWereBlocked: nothing has changed.
BlockResult BlockStopSignals();

class Cancellation {
 public:
  // After BlockStopSignals has returned kWereBlocked. `yield_file`: whose existence asks the rank to give way; empty: none.
  explicit Cancellation(std::string yield_file = "");
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  bool requested() const { return requested_; }
  // To give way when a step is done.
  bool YieldRequested() const;

  // The communicator to abort; nullptr before it is destroyed. While there is none, a request exits the process at
  // once with kRankExitCancelled. Where a request has come already, aborts it now.
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

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_CANCELLATION_H_
