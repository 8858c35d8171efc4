// FleetProcess: a fleet in a process of its own, which gives way to all others: on a real cluster the nodes are not on the
// server's machine. What it measures comes over shared memory. Thread-safe.
#ifndef LYNX_BENCH_SCALE_FLEET_PROCESS_H_
#define LYNX_BENCH_SCALE_FLEET_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/scale/fleet.h"

namespace lynx::scale {

class FleetProcess {
 public:
  // Before anything of gRPC is made in this process, which goes on as two. `nice`: 0 to 19, how much it gives way.
  FleetProcess(const FleetOptions& options, int nice);
  ~FleetProcess();
  FleetProcess(const FleetProcess&) = delete;
  FleetProcess& operator=(const FleetProcess&) = delete;

  // As Fleet's.
  int attached() const;
  int64_t told() const;
  int64_t running() const;
  // Sorted; those since the last call.
  std::vector<double> TakeIntervals();
  std::vector<double> TakeAnswers();
  // Why streams have ended, and how many; the commonest first.
  std::string Ended() const;

 private:
  struct Shared;
  [[noreturn]] void Main(const FleetOptions& options, int nice);

  Shared* shared_;
  pid_t pid_ = 0;
};

}  // namespace lynx::scale

#endif  // LYNX_BENCH_SCALE_FLEET_PROCESS_H_
