// lynx_sim runs the simulation for many seeds, or prints the history of one seed.
//
//   lynx_sim FIRST LAST     prints what happened in all, and every violation with its seed; exit code 1 if there are any
//   lynx_sim --seed SEED    prints the history
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/simulation.h"

int main(int argc, char** argv) {
  using lynx::server::sim::Outcome;
  if (argc != 3) {
    std::fprintf(stderr, "lynx_sim: give the first and the last seed, or --seed SEED\n");
    return 2;
  }
  if (std::string(argv[1]) == "--seed") {
    const Outcome outcome = lynx::server::sim::Simulate({.seed = std::strtoull(argv[2], nullptr, 10), .tells = true});
    for (const std::string& line : outcome.history) std::puts(line.c_str());
    return outcome.violations.empty() ? 0 : 1;
  }
  const uint64_t first = std::strtoull(argv[1], nullptr, 10), last = std::strtoull(argv[2], nullptr, 10);
  Outcome sum;
  int64_t violated = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Outcome outcome = lynx::server::sim::Simulate({.seed = seed});
    for (const std::string& violation : outcome.violations)
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
    violated += outcome.violations.empty() ? 0 : 1;
    sum.faults += outcome.faults;
    sum.generations += outcome.generations;
    sum.replans += outcome.replans;
    sum.preemptions += outcome.preemptions;
    sum.commits += outcome.commits;
    sum.succeeded += outcome.succeeded;
    sum.failed += outcome.failed;
    sum.cancelled += outcome.cancelled;
    sum.events += outcome.events;
    sum.memory_faults += outcome.memory_faults;
    sum.checks += outcome.checks;
    sum.failed_checks += outcome.failed_checks;
    sum.excluded += outcome.excluded;
    sum.stops += outcome.stops;
    sum.takeovers += outcome.takeovers;
    sum.both_stopped += outcome.both_stopped;
    sum.outages += outcome.outages;
    sum.in_doubt += outcome.in_doubt;
    sum.reads += outcome.reads;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds in %.1f s: %lld faults, %lld generations trained, %lld plans changed, %lld times room made, %lld times out "
      "of memory, "
      "%lld checks of nodes, of which %lld failed, %lld nodes left out of a job, %lld stops of a leader, %lld of them beside "
      "another server, %lld takeovers, %lld outages of the store, %lld commits in doubt, %lld answers compared, "
      "%lld checkpoints, %lld jobs "
      "succeeded, %lld failed, %lld cancelled, %lld events; %lld seeds with violations\n",
      static_cast<unsigned long long>(last - first + 1), seconds, static_cast<long long>(sum.faults),
      static_cast<long long>(sum.generations), static_cast<long long>(sum.replans), static_cast<long long>(sum.preemptions),
      static_cast<long long>(sum.memory_faults), static_cast<long long>(sum.checks), static_cast<long long>(sum.failed_checks),
      static_cast<long long>(sum.excluded), static_cast<long long>(sum.stops), static_cast<long long>(sum.both_stopped),
      static_cast<long long>(sum.takeovers), static_cast<long long>(sum.outages), static_cast<long long>(sum.in_doubt),
      static_cast<long long>(sum.reads), static_cast<long long>(sum.commits), static_cast<long long>(sum.succeeded),
      static_cast<long long>(sum.failed), static_cast<long long>(sum.cancelled), static_cast<long long>(sum.events),
      static_cast<long long>(violated));
  return violated == 0 ? 0 : 1;
}
