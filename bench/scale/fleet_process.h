// FleetProcess: a fleet in its own process, which gives way to all other processes, because in a real cluster the nodes
// are not on the server's machine. It returns what it measures through shared memory. Thread-safe.
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
  // Forks. Call it before anything of gRPC is made in this process. `nice`: 0 to 19, how much the fleet gives way.
  FleetProcess(const FleetOptions& options, int nice);
  ~FleetProcess();
  FleetProcess(const FleetProcess&) = delete;
  FleetProcess& operator=(const FleetProcess&) = delete;

  // These functions return the same as the functions of Fleet with the same names.
  int attached() const;
  int64_t told() const;
  int64_t running() const;
  // The values since the last call, sorted.
  std::vector<double> TakeIntervals();
  std::vector<double> TakeAnswers();
  // Why streams have ended, and how often; the most frequent reason first.
  std::string Ended() const;

 private:
  struct Shared;
  [[noreturn]] void Main(const FleetOptions& options, int nice);

  Shared* shared_;
  pid_t pid_ = 0;
};

}  // namespace lynx::scale

#endif  // LYNX_BENCH_SCALE_FLEET_PROCESS_H_
