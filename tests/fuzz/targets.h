// What a fuzzer calls with any bytes: readers of what people and other programs write, and the planner behind them.
// Each ends the process if the input is taken in a wrong way: it must be refused as InvalidArgument with a message,
// or give a value that passes its checks. One thread.
#ifndef LYNX_TESTS_FUZZ_TARGETS_H_
#define LYNX_TESTS_FUZZ_TARGETS_H_

#include <functional>
#include <string>
#include <vector>

namespace lynx {

struct FuzzTarget {
  std::string name;
  std::function<void(const std::string& input)> run;
  std::vector<std::string> corpus;  // good inputs to begin from
};

// Job files; cluster files; config.json files of models; profiles as JSON, of which the first two also plan what they read,
// where that is small. Then what comes from other machines and disks: MachineTargets.
const std::vector<FuzzTarget>& FuzzTargets();
inline constexpr size_t kFuzzTargetCount = 16;

// Messages of agents, worker daemons and clients, and of plans, as protobuf's JSON; programs; the index of a Megatron data set;
// headers of safetensors files; the index of a checkpoint; what ranks report and are told, and what the daemon keeps of them;
// the log of a run's figures.
std::vector<FuzzTarget> MachineTargets();

// Words that such inputs are made of.
const std::vector<std::string>& FuzzWords();

}  // namespace lynx

#endif  // LYNX_TESTS_FUZZ_TARGETS_H_
