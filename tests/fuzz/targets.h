// Functions that a fuzzer calls with arbitrary bytes: the readers of what people and other programs write, and the
// planner behind them. An input must be refused as InvalidArgument with a message, or give a value that passes its
// checks; otherwise the function ends the process. One thread.
#ifndef LYNX_TESTS_FUZZ_TARGETS_H_
#define LYNX_TESTS_FUZZ_TARGETS_H_

#include <functional>
#include <string>
#include <vector>

namespace lynx {

struct FuzzTarget {
  std::string name;
  std::function<void(const std::string& input)> run;
  std::vector<std::string> corpus;  // valid inputs to start from
};

// Job files, cluster files, config.json files of models, and profiles as JSON; the first two are also planned if they
// are small. Then the inputs that come from other machines and disks: MachineTargets.
const std::vector<FuzzTarget>& FuzzTargets();
inline constexpr size_t kFuzzTargetCount = 16;

// Messages of agents, worker daemons and clients, and plans, as protobuf's JSON; programs; the index of a Megatron data
// set; headers of safetensors files; the index of a checkpoint; the reports and commands of ranks, and what the daemon
// keeps of them; the log of a run's figures.
std::vector<FuzzTarget> MachineTargets();

// Words that occur in such inputs.
const std::vector<std::string>& FuzzWords();

}  // namespace lynx

#endif  // LYNX_TESTS_FUZZ_TARGETS_H_
