// Reconcile decides what to do so that the ranks of a node become those that the server wants. Pure: it uses no clock and no
// processes.
//
//                    wanted, no peers yet            wanted, peers complete
//      (unknown) ----------------------> LISTENING ------------------------> RUNNING ----> EXITED
//          |  wanted, peers complete         |                                  |             |
//          +--> EXITED (refused: its         | not wanted                       | not wanted  | not wanted, released
//               socket is gone)              v                                  v             v
//                                        forgotten              SIGTERM, after the grace   forgotten
//                                                               SIGKILL, EXITED
//
// The daemon may ask a running rank that is wanted to give way when a step is done. It may withdraw the request while the rank
// runs.
//
// A rank that has been asked to end must end, because a generation is started only once. A rank that has ended is kept until
// the server releases it, because the server may not have its last reports yet (a checkpoint, or why the rank failed).
#ifndef LYNX_WORKER_DAEMON_RECONCILE_H_
#define LYNX_WORKER_DAEMON_RECONCILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/rank_key.h"
#include "common/units.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

// Says how far the daemon has gone in stopping a running rank.
enum class StopStage : uint8_t { kNone, kAsked, kKilled };

struct DesiredRank {
  RankKey key;
  bool start = false;   // true if the addresses of all peers are known
  PeerAddress address;  // set with `start`: the address at which the peers expect this rank
  bool yield = false;   // true if the rank is asked to give way when a step is done
};

struct ActualRank {
  RankKey key;
  RankPhase phase = RankPhase::kListening;
  PeerAddress address;                // in phase kListening: the address to which the rank's socket is bound
  StopStage stop = StopStage::kNone;  // kNone unless the phase is kRunning
  Nanos asked_at;                     // for StopStage::kAsked: when the rank was asked to end, on the clock of `now`
  bool yield = false;                 // in phase kRunning: the rank has been asked to give way
  bool released = false;              // in phase kExited: the server needs nothing more from the rank
};

enum class SupervisorActionKind : uint8_t {
  kListen,         // bind a socket for the rank
  kStart,          // start the rank's process
  kRefuse,         // record the rank as EXITED with `reason`; it never runs
  kAskToYield,     // create the rank's yield file
  kTakeYieldBack,  // remove the rank's yield file
  kTerminate,      // send SIGTERM
  kKill,           // send SIGKILL
  kForget,         // close the rank's socket, if it has one, and remove the rank from the table
};

struct RankOperation {
  SupervisorActionKind kind;
  RankKey key;
  std::string reason;  // set for kRefuse
};

// Returns the operations in the order in which the daemon must do them. Ranks end first, so that new ranks can use what they
// free. `desired` and `actual` name each rank at most once.
std::vector<RankOperation> Reconcile(const std::vector<DesiredRank>& desired, const std::vector<ActualRank>& actual, Nanos now,
                                     Nanos grace);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RECONCILE_H_
