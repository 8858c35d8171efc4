// Mistake: a mistake that a test lets the controller make on purpose, to show that the simulation (tests/sim) finds it. A real
// server never makes one.
#ifndef LYNX_SERVER_CONTROLLER_STATE_SEEDED_MISTAKE_H_
#define LYNX_SERVER_CONTROLLER_STATE_SEEDED_MISTAKE_H_

#include <cstdint>

namespace lynx::server {

enum class Mistake : uint8_t {
  kNone,
  kReuseGeneration,      // a restart keeps the generation number of the previous generation
  kStartBesideOldRanks,  // a new generation does not wait until the ranks of the previous one are gone
  kForgetWhatIsHeld,     // devices of other jobs count as free
  kForgetKeys,           // idempotency keys are not looked up
  kSucceedEarly,         // a job succeeds with its last step, before the checkpoint of that step
  kForgetTheQueue,       // a restarted server forgets queued jobs
  kNeverLoseNodes,       // the server waits forever for a node that is absent
  kForgetOrphans,        // the server ignores ranks that still run on a node that was given up and came back
  kStartSilently,        // a generation begins without an event
  kForgetCordons,        // a restarted server starts ranks on cordoned nodes
  kForgetDependencies,   // a job does not wait for the jobs that it depends on
  kForgetHolds,          // a job starts although it is held
  kForgetMemory,         // a job that has run out of memory starts again with the same plan
  kForgetQuorum,         // a server that has lost contact to most nodes gives their work to the others
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_SEEDED_MISTAKE_H_
