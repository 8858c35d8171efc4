// CommunicationThread is the one thread that sends and receives a communicator's bytes. It never spins: it sleeps in poll(),
// until a connection can move bytes or the board wakes it up.
//
// Operations wait in queues that are called lanes (lanes.h). The thread watches the control connections all the time. They tell
// the state of each peer:
//
//   peer:  present --notice "leaves"--> left         an operation that still needs the peer fails
//          present --notice "gives up"--> failure    with the peer's reason
//          present --closed--> failure               the peer is lost
//          present --no sign of life--> failure
//          present --lives, but makes no progress while a transfer waits for it--> failure
// If a data connection ends, its peer becomes suspect. The peer's control connection then tells which of these cases it is.
//
// After a failure, the thread reports it to all peers and closes every connection, and all calls return that failure.
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
  bool experts = false;  // see ExpertGroups
  int32_t rank = 0;
  Nanos idle_timeout;    // 0 = there is no limit
  Nanos silence_limit;   // 0 = there is no limit
  Nanos progress_limit;  // 0 = there is no limit; needs signs of life
  Nanos connect_timeout;
  std::vector<int32_t> elsewhere;  // ranks on other hosts, ascending; see Communicator::LinkUses
};

class CommunicationThread {
 public:
  // Starts the thread. The board must live longer than this object.
  CommunicationThread(const CommunicationThreadOptions& options, std::vector<Link> links, TransferBoard* board);
  // Ends the thread. Tells the peers that this rank leaves or, if an operation is still pending, that this rank has failed.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  // These functions are thread-safe.
  void SetIdleTimeout(Nanos idle_timeout);
  void SetProgressLimit(Nanos limit);
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  Nanos CpuTime() const;
  std::vector<LinkUse> LinkUses() const;

 private:
  struct Lane {
    LaneInfo info;
    int32_t out = -1;  // index into links_; -1: the lane has no link in this direction
    int32_t in = -1;
    // Only for the expert group: the links of LaneInfo::by_distance. During an all-to-all, `out` and `in` are the links of its
    // current step.
    std::vector<int32_t> by_distance;
    int32_t step = 1;  // the current step of the operation in progress; only an all-to-all has several steps
    int64_t next_number = 0;
    std::vector<Operation> queue;  // short; if `exchange` is set, the first operation is in progress
    std::optional<Exchange> exchange;
    StreamPlan used;     // the plan of the previous exchange; the next plan reuses its memory
    int64_t number = 0;  // the number of the operation in progress
    Nanos started{0};    // when the first step of the operation had begun in all of its directions
    Nanos last_progress;
    bool stalled = false;  // a connection of the lane has ended; the peer's control connection will give the reason
  };
  struct Peer {
    int32_t rank = 0;
    int32_t control = -1;  // index into links_
    std::string received;  // the bytes of a notice that is not complete yet
    bool left = false;
    Nanos heard{0};          // the time of the peer's last sign of life, or the time at which the first one is due
    ProgressSign progress;   // the progress that its newest sign of life reports
    Nanos progressed{0};     // when it last made progress or waited for a transfer; 0: it has given no sign of life yet
    Nanos suspect_since{0};  // 0: the peer is not suspect
    std::string suspicion;   // says what happened to the peer's data connection
  };

  int32_t FindLink(const std::optional<LinkKey>& key) const;  // -1 if there is no such link

  void Run();
  void TakeOrders();
  void StartNext(Lane& lane);
  void StartStep(Lane& lane);
  void FinishStep(Lane& lane);
  void Progress(Lane& lane);
  // Handles the result of a send or a receive. Returns false if the lane cannot continue.
  bool Accept(Lane& lane, int32_t link, const IoResult& result);
  void FinishOperation(Lane& lane);
  void TakeLinkUses();

  void PollOnce();
  void AwaitBytes(int32_t link, int64_t bytes);  // poll() then reports the link as readable only when it has this many bytes
  int PollTimeoutMs() const;
  void GiveSignOfLife(Nanos now);
  // Moves the deadlines of the peers by `gap`, because this process did not run for that time. Peers that seemed silent in that
  // time may have been alive.
  void Excuse(Nanos gap, Nanos now);
  void ReadControl(Peer& peer);
  void Heed(Peer& peer, const Notice& notice);
  void TellPeers(const Notice& notice);
  void TellLastWord(const Notice& notice);
  void PeerClosed(Peer& peer, int error);
  void DataLinkLost(Lane& lane, int32_t link, int error);
  // Returns true if it failed, because a peer that a transfer waits for makes no progress.
  bool CheckProgress();
  void CheckDeadlines(Nanos now);                        // `now`: a time that was read before this turn moved bytes
  void Forged(int32_t link, const std::string& during);  // bytes of an encrypted connection are not authentic
  void Mismatch(const Lane& lane, int32_t link, const IoResult& result);

  void FailHere(const absl::Status& here, const absl::Status& told);
  void CloseAfterFailure(const absl::Status& told);
  void SayFarewell();

  Peer& PeerOf(int32_t rank);
  std::string OperationText(const Lane& lane) const;  // "all-reduce 17 of the tensor group"
  std::string LossText(const Peer& peer, int error) const;
  // Returns a text such as " during all-reduce 17 of the tensor group", or "" if no operation waits for the peer.
  std::string DuringText(const Peer& peer) const;
  std::string Name(int32_t rank) const { return RankText(options_.layout, rank); }

  const CommunicationThreadOptions options_;
  TransferBoard* const board_;
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<int64_t> idle_timeout_ns_;          // 0 = there is no limit
  std::atomic<int64_t> progress_limit_ns_;        // 0 = there is no limit
  std::atomic<int64_t> progress_counts_from_{0};  // a monotonic time: lack of progress before it does not count
  mutable std::mutex link_uses_mutex_;
  std::vector<LinkUse> link_uses_;

  // The members below are used only by the communication thread.
  std::vector<Link> links_;
  TransferBoard::Orders orders_;  // the orders that were taken last
  std::deque<Lane> lanes_;        // in the order of the LaneTable
  const int32_t world_lane_;
  std::vector<Peer> peers_;
  std::vector<char> staging_;
  std::vector<pollfd> polled_;    // the wake-up descriptor, then one for each link
  std::vector<int32_t> awaited_;  // for each link, how many bytes it must have before poll() reports it as readable
  Nanos next_sign_{0};            // when the next sign of life is due
  bool failed_ = false;
  bool stop_ = false;

  std::thread thread_;
};

// The memory that one communicator allocates for itself. It does not depend on the size of the transfers, and does not include
// the kernel's socket buffers. Each encrypted connection needs 2 * kMaxFrameBytes more (link_stream.h).
inline constexpr Bytes kCommunicatorStaging{256 * 1024};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_COMMUNICATION_THREAD_H_
