// Cancellation handles requests to end the rank, either at once or after the present step.
//
// SIGTERM (or SIGINT) ends the rank at once. A separate thread waits for the signal and aborts the communicator. This wakes the
// rank's compute thread and tells every peer. If the compute thread does not end within a grace time (it may be in a long
// product, or writing to a slow disk), the process exits. A checkpoint is either whole or invisible, so this leaves no
// half-written checkpoint.
//
// A file beside the rank's configuration asks the rank to give way after a step. The request remains if the process that made
// it ends, and it can be withdrawn. The rank looks for the file between steps. Then all ranks agree on the step after which
// they give way.
//
// The signals must be blocked in every thread, also in threads that libraries start before main (see BlockStopSignals).
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
// Blocks SIGTERM and SIGINT in the calling thread and in the threads that it starts from now on. They stay blocked in a program
// that replaces this one (execv). Returns kWereBlocked if they were blocked already.
BlockResult BlockStopSignals();

class Cancellation {
 public:
  // Create it only after BlockStopSignals has returned kWereBlocked. `yield_file`: while this file exists, the rank is asked to
  // give way. Empty: there is no such file.
  explicit Cancellation(std::string yield_file = "");
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  bool requested() const { return requested_; }
  // True if the rank is asked to give way after the present step.
  bool YieldRequested() const;

  // Sets the communicator that a request aborts. Call it with nullptr before the communicator is destroyed. While no
  // communicator is set, a request ends the process at once with kRankExitCancelled. If a request came before this call, the
  // call aborts the communicator.
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
