// Reconcile: decides what to do so that the ranks of a node become those that the server wants. Pure: no clock, no processes.
//
//                    wanted, no peers yet            wanted, peers complete
//      (unknown) ----------------------> LISTENING ------------------------> RUNNING ----> EXITED
//          |  wanted, peers complete         |                                  |             |
//          +--> EXITED (refused: its         | not wanted                       | not wanted  | not wanted, released
//               socket is gone)              v                                  v             v
//                                        forgotten              SIGTERM, after the grace   forgotten
//                                                               SIGKILL, EXITED
//
// A running, wanted rank may be asked to give way when a step is done; the request may be withdrawn while the rank runs.
//
// A rank that has been asked to end is never taken back, because a generation is started only once. A rank that has ended is
// kept until the server releases it, because its last reports (a checkpoint, why it failed) may not have arrived yet.
#ifndef LYNX_WORKER_DAEMON_RECONCILE_H_
#define LYNX_WORKER_DAEMON_RECONCILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/rank_key.h"
#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

// How far the daemon has gone in stopping a running rank.
enum class StopStage : uint8_t { kNone, kAsked, kKilled };

struct DesiredRank {
  RankKey key;
  bool start = false;   // the addresses of all peers are known
  PeerAddress address;  // with `start`: where the peers expect this rank
  bool yield = false;   // give way when a step is done
};

struct ActualRank {
  RankKey key;
  RankPhase phase = RankPhase::kListening;
  PeerAddress address;                // kListening: where its socket is bound
  StopStage stop = StopStage::kNone;  // kRunning
  Nanos asked_at;                     // for stop kAsked: when it was asked, on the clock of `now`
  bool yield = false;                 // kRunning: asked to give way
  bool released = false;              // kExited: the server needs nothing more of it
};

enum class SupervisorActionKind : uint8_t {
  kListen,         // bind a socket
  kStart,          // start the process
  kRefuse,         // record it as EXITED with `reason`; it has not run
  kAskToYield,     // create its yield file
  kTakeYieldBack,  // remove its yield file
  kTerminate,      // SIGTERM
  kKill,           // SIGKILL
  kForget,         // close its socket, if it has one, and drop it from the table
};

struct RankOperation {
  SupervisorActionKind kind;
  RankKey key;
  std::string reason;  // kRefuse
};

// Returns the operations in the order in which to do them: endings first, so that new ranks can use what they free. `desired`
// and `actual` name each rank at most once.
std::vector<RankOperation> Reconcile(const std::vector<DesiredRank>& desired, const std::vector<ActualRank>& actual, Nanos now,
                                     Nanos grace);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RECONCILE_H_
