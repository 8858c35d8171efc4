// Simulation: a whole cluster on one thread and a simulated clock: the real controller, the real rule by which a node's
// daemon acts (Reconcile), ranks that train in lock step, a network that delays, stalls and parts, a store that keeps what was
// committed, clients that ask again, and faults at random. One seed is one history, always the same.
//
//   faults for a while -> everything is mended -> every job must end
//
// All along it is checked what the service promises; a violation is a sentence. Test support; not thread-safe.
#ifndef LYNX_TESTS_SIM_SIMULATION_H_
#define LYNX_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/controller/controller.h"

namespace lynx::sim {

// Mistakes of what surrounds the controller; its own are the controller's (lynx::Mistake).
enum class WorldMistake : uint8_t {
  kNone,
  kReplyBeforeCommit,  // a submission is acknowledged, then stored
  kOrderBeforeCommit,  // nodes are told what to do, then it is stored
  kNoFence,            // a checkpoint directory takes what older generations write
  kNoLease,            // ranks of a node that is cut off go on
};

struct Options {
  uint64_t seed = 1;
  Mistake mistake = Mistake::kNone;
  WorldMistake world_mistake = WorldMistake::kNone;
  bool tells = false;  // keeps the history
};

struct Outcome {
  std::vector<std::string> violations;
  std::vector<std::string> history;
  int64_t faults = 0, generations = 0, replans = 0, preemptions = 0, commits = 0, succeeded = 0, failed = 0, cancelled = 0,
          memory_faults = 0;
  int64_t checks = 0, failed_checks = 0, excluded = 0;  // of nodes before a generation; nodes, for one job each
  int64_t events = 0;                                   // that the controller was given
};

Outcome Simulate(const Options& options);

}  // namespace lynx::sim

#endif  // LYNX_TESTS_SIM_SIMULATION_H_
