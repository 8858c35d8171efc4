// RankProcesses runs the ranks of a small job as real lynx-rank processes that share a folder. Test support.
#ifndef LYNX_TESTS_WORKER_RANK_RANK_PROCESSES_H_
#define LYNX_TESTS_WORKER_RANK_RANK_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/problem/layout.h"
#include "tests/worker/test_folder.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {

// Two small models with four layers. The second one has experts, drops nothing and has no losses of the router, so it is the
// same in every layout.
ModelSpec SmallGpt();
ModelSpec SmallMoe();

inline const ParallelLayout kSmallLayout{.tp = 2, .pp = 2, .dp = 1};
// Returns the configuration of a job of `steps` steps that recomputes everything and keeps its checkpoints in the folder.
// RankProcesses adds `generation`, `rank` and `peers`. `layout` must have four ranks and the schedule 1F1B.
RankConfig SmallConfig(const TestFolder& folder, int64_t steps, int32_t stage, const ParallelLayout& layout = kSmallLayout,
                       const ModelSpec& model = SmallGpt());
// Returns one configuration for each stage. If `change` is not null, it changes each of them.
std::vector<RankConfig> Configs(const TestFolder& folder, int64_t steps,
                                const std::function<void(RankConfig&)>& change = nullptr,
                                const ParallelLayout& layout = kSmallLayout, const ModelSpec& model = SmallGpt());
// Returns a directory in which a file with a short name can be made, but not one with a long name: a fence can be made, a shard
// cannot.
std::string DirectoryForShortNames(const TestFolder& folder);
// Returns the path of the lease file. If the file exists when the ranks start, they use it.
inline std::string LeaseOf(const TestFolder& folder) { return folder.path() + "/lease"; }
// A number of steps that no test reaches: the ranks train until the test ends them.
inline constexpr int64_t kEndless = 1'000'000;

class RankProcesses {
 public:
  static constexpr int kKilled = -1;  // stands for the exit code of a process that a signal ended
  static constexpr int kRanks = 4;

  // A fault of a rank: its name in faulty_rank.cc, and the step in which it happens.
  struct RankFault {
    std::string name;
    int64_t step = 0;
  };
  // Starts the ranks of one generation, without those in `absent`. `configs`: one for each stage. `faults`: by rank. `yields`:
  // the ranks are asked to give way from the beginning (faulty ranks do not notice this).
  RankProcesses(const TestFolder& folder, std::vector<RankConfig> configs, int64_t generation = 1,
                const std::vector<int>& absent = {}, const std::map<int, RankFault>& faults = {}, bool yields = false);
  ~RankProcesses();  // kills and reaps the processes that still run
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return processes_[rank]; }
  void Signal(int rank, int signal) const;
  void AskToYield(int rank) const;
  // Waits for the process to end. After a minute, which is longer than any test here needs, fails the test and kills the
  // process.
  int ExitCode(int rank);
  std::vector<RankReport> Reports(int rank) const;
  // Waits until the rank has reported `steps` steps. Fails the test after a minute.
  void WaitForSteps(int rank, int64_t steps) const;
  std::string Log(int rank) const;  // the stderr of the rank
  // Expects all ranks to end with this exit code.
  void ExpectAllExit(int expected);
  // Returns the losses of all ranks, which must be the same.
  std::vector<double> Losses() const;

 private:
  std::string FileOf(const char* what, int rank) const;
  pid_t Start(int rank, int listen_fd, const std::map<int, RankFault>& faults) const;

  const TestFolder& folder_;
  const int64_t generation_;
  std::vector<pid_t> processes_;  // -1: the process was reaped or never started
};

template <class T>
std::vector<T> Only(const std::vector<RankReport>& reports) {
  std::vector<T> result;
  for (const RankReport& report : reports) {
    if (const T* one = std::get_if<T>(&report)) result.push_back(*one);
  }
  return result;
}

inline constexpr char kLynxRank[] = LYNX_BINARY_DIR "/bin/lynx-rank";
inline constexpr char kStandInRank[] = LYNX_BINARY_DIR "/bin/stand_in_rank";  // uses CUDA on the host as its GPU

// Runs the binary with these arguments until it ends. Returns the exit code and the output.
struct Output {
  int exit_code = 0;
  std::string out, err;
};
Output RunLynxRank(const TestFolder& folder, const std::vector<std::string>& arguments, const std::string& binary = kLynxRank);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_RANK_RANK_PROCESSES_H_
