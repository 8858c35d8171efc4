// CommunicationThread: the one thread that sends and receives a communicator's bytes. It sleeps in poll() on the connections
// that can progress and on the board's wake-up descriptor; it never spins.
//
// Operations wait in queues called lanes (lanes.h). Control connections are watched all the time:
//
//   peer:  present --notice "leaves"--> left         an operation that still needs it fails
//          present --notice "gives up"--> failure    with the peer's reason
//          present --closed--> failure               the peer is lost
//          present --no sign of life--> failure
//   A data connection that ends makes its peer suspect; the peer's control connection then tells which of these it is.
//
// The thread reports any failure to all peers and closes every connection, and all calls return that failure.
#ifndef LYNX_WORKER_COLLECTIVES_COMMUNICATION_THREAD_H_
#define LYNX_WORKER_COLLECTIVES_COMMUNICATION_THREAD_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/link_use.h"
#include "common/units.h"
#include "planner/problem/layout.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/lanes.h"
#include "worker/collectives/tcp_connect.h"
#include "worker/collectives/transfer_board.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {

struct CommunicationThreadOptions {
  ParallelLayout layout;
  int32_t rank = 0;
  Nanos idle_timeout;   // 0 = never
  Nanos silence_limit;  // 0 = never
  Nanos connect_timeout;
  std::vector<int32_t> elsewhere;  // ranks on other hosts, ascending; see Communicator::LinkUses
};

class CommunicationThread {
 public:
  // Starts the thread. The board outlives this object.
  CommunicationThread(const CommunicationThreadOptions& options, std::vector<Link> links, TransferBoard* board);
  // Ends the thread: tells the peers that this rank leaves or, if operations are still pending, that it has failed.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  // Thread-safe.
  void SetIdleTimeout(Nanos idle_timeout);
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  Nanos CpuTime() const;
  std::vector<LinkUse> LinkUses() const;

 private:
  struct Lane {
    LaneInfo info;
    int32_t out = -1;  // index into links_; -1: no link
    int32_t in = -1;
    int64_t next_number = 0;
    std::vector<Operation> queue;  // short; the first one is in progress if `exchange` is set
    std::optional<Exchange> exchange;
    StreamPlan used;     // the plan of the previous exchange, whose memory is reused
    int64_t number = 0;  // of the operation in progress
    Nanos last_progress;
    bool stalled = false;  // its connection has ended; the peer's control connection will give the reason
  };
  struct Peer {
    int32_t rank = 0;
    int32_t control = -1;  // index into links_
    std::string received;  // part of a notice
    bool left = false;
    Nanos heard{0};          // time of its last sign of life, or when the first one is due
    Nanos suspect_since{0};  // 0: not suspect
    std::string suspicion;   // what happened to its data connection
  };

  int32_t FindLink(const std::optional<LinkKey>& key) const;  // -1 for none

  void Run();
  void TakeOrders();
  void StartNext(Lane& lane);
  void Progress(Lane& lane);
  // Returns false when the lane cannot continue.
  bool Accept(Lane& lane, int32_t link, const IoResult& result);
  void FinishOperation(Lane& lane);
  void TakeLinkUses();

  void PollOnce();
  void AwaitBytes(int32_t link, int64_t bytes);  // link counts as readable only when this many bytes are there
  int PollTimeoutMs() const;
  void GiveSignOfLife(Nanos now);
  // This process did not run for `gap`, so peers that were silent in that time may have been alive: moves their deadlines.
  void Excuse(Nanos gap, Nanos now);
  void ReadControl(Peer& peer);
  void Heed(Peer& peer, const Notice& notice);
  void TellPeers(const Notice& notice);
  void TellLastWord(const Notice& notice);
  void PeerClosed(Peer& peer, int error);
  void DataLinkLost(Lane& lane, int32_t link, int error);
  void CheckDeadlines(Nanos now);  // `now`: the time before this turn's bytes were moved
  void Mismatch(const Lane& lane, int32_t link, const IoResult& result);

  void FailHere(const absl::Status& here, const absl::Status& told);
  void CloseAfterFailure(const absl::Status& told);
  void SayFarewell();

  Peer& PeerOf(int32_t rank);
  std::string OperationText(const Lane& lane) const;  // "all-reduce 17 of the tensor group"
  std::string LossText(const Peer& peer, int error) const;
  // " during all-reduce 17 of the tensor group"; "" if no operation waits for the peer
  std::string DuringText(const Peer& peer) const;
  std::string Name(int32_t rank) const { return RankText(options_.layout, rank); }

  const CommunicationThreadOptions options_;
  TransferBoard* const board_;
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> idle_timeout_ns_;  // 0 = never
  mutable std::mutex link_uses_mutex_;
  std::vector<LinkUse> link_uses_;

  // Owned by the thread.
  std::vector<Link> links_;
  TransferBoard::Orders orders_;  // the orders that were taken last
  std::deque<Lane> lanes_;        // by number in the LaneTable
  const int32_t world_lane_;
  std::vector<Peer> peers_;
  std::vector<char> staging_;
  std::vector<pollfd> polled_;    // the wake-up descriptor, then one for each link
  std::vector<int32_t> awaited_;  // for each link: the bytes that must be there before it counts as readable
  Nanos next_sign_{0};            // when the next sign of life is due
  bool failed_ = false;
  bool stop_ = false;

  std::thread thread_;
};

// Memory that one communicator allocates for itself, whatever the size of its transfers. It does not include the kernel's
// socket buffers.
inline constexpr Bytes kCommunicatorStaging{256 * 1024};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_COMMUNICATION_THREAD_H_
