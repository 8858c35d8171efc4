// Functions that a fuzzer calls with arbitrary bytes. They call the readers of everything that people and other programs write;
// some then call the planner. A reader must either refuse the input, with a message and an error code that the target expects,
// or return a value that passes the target's checks. Otherwise the function ends the process. One thread.
#ifndef LYNX_TESTS_FUZZ_TARGETS_H_
#define LYNX_TESTS_FUZZ_TARGETS_H_

#include <functional>
#include <string>
#include <vector>

namespace lynx {

struct FuzzTarget {
  std::string name;
  std::function<void(const std::string& input)> run;
  std::vector<std::string> corpus;  // valid inputs with which the fuzzer begins
};

// Returns the targets for job files, cluster files, config.json files of models, and profiles as JSON. Small job files are also
// planned. Cluster files are also planned, with a small job. Then follow the targets for inputs from other machines and disks
// (MachineTargets).
const std::vector<FuzzTarget>& FuzzTargets();
inline constexpr size_t kFuzzTargetCount = 16;

// Returns the targets for: messages of agents, worker daemons and clients, and plans, as protobuf's JSON; programs; the index
// of a Megatron data set; headers of safetensors files; the index of a checkpoint; the reports and commands of ranks, and what
// the daemon stores of them; the log of a run's figures.
std::vector<FuzzTarget> MachineTargets();

// Returns words that occur in the inputs of the targets.
const std::vector<std::string>& FuzzWords();

}  // namespace lynx

#endif  // LYNX_TESTS_FUZZ_TARGETS_H_
