// Simulation runs a whole cluster on one thread and a simulated clock. It has the real controller, and the real rule by which a
// node's daemon acts (Reconcile). Everything else is simulated: ranks that do each step together, a network that delays
// messages, stalls and splits, a store that keeps what was committed, clients that repeat calls, and random faults. The same
// seed always gives the same history.
//
//   faults for a while -> everything is mended -> every job must end
//
// The simulation checks the service's promises all the time. A violation is a sentence. Test support; not thread-safe.
#ifndef LYNX_TESTS_SIM_SIMULATION_H_
#define LYNX_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/controller/controller.h"

namespace lynx::server::sim {

// Mistakes around the controller, with which the checks are tested. server::Mistake has the mistakes of the controller itself.
enum class WorldMistake : uint8_t {
  kNone,
  kReplyBeforeCommit,  // a submission is acknowledged before it is stored
  kOrderBeforeCommit,  // nodes are told what to do before it is stored
  kNoFence,            // checkpoint directories accept what older generations write
  kNoLease,            // the ranks of a node that is cut off continue
  // A server is stopped, another one leads meanwhile, and then the first server continues:
  kAcknowledgeWithoutEpoch,  // it answers although its commit was refused
  kTwoLeaders,               // it writes, as if nobody checked the epoch
  kStaleRead,                // it answers from its memory what is asked, as if it led
  // The store is away while the leader commits, and it is not known whether the commit was written:
  kBelieveWritten,  // the leader continues as if the commit had been written
  kWriteTwice,      // the leader writes it again
};

struct Options {
  uint64_t seed = 1;
  Mistake mistake = Mistake::kNone;
  WorldMistake world_mistake = WorldMistake::kNone;
  bool tells = false;  // true: the history is kept
};

struct Outcome {
  std::vector<std::string> violations;
  std::vector<std::string> history;
  int64_t faults = 0, generations = 0, replans = 0, preemptions = 0, commits = 0, succeeded = 0, failed = 0, cancelled = 0,
          memory_faults = 0;
  // The numbers of checks of nodes before a generation, of failed checks, and of nodes that a job excluded.
  int64_t checks = 0, failed_checks = 0, excluded = 0;
  int64_t stops = 0, takeovers = 0;  // how often a leader was stopped, and how often another one led then
  int64_t both_stopped = 0;          // how often two servers were stopped at the same time
  int64_t outages = 0;               // how often the store was away
  int64_t in_doubt = 0;              // commits whose answers were lost, so that the leader had to find out about them
  int64_t reads = 0;                 // answers that were compared with the store
  int64_t events = 0;                // events that the controllers received
};

Outcome Simulate(const Options& options);

}  // namespace lynx::server::sim

#endif  // LYNX_TESTS_SIM_SIMULATION_H_
