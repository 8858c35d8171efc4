// The common parts of the all-reduce benchmarks: rank processes, and the measurement of one implementation. Prints a
// Markdown table.
#ifndef LYNX_BENCH_ALL_REDUCE_BENCH_H_
#define LYNX_BENCH_ALL_REDUCE_BENCH_H_

#include <cstdint>
#include <functional>

namespace lynx {

struct BenchSize {
  int32_t ranks = 2;
  int rounds = 50;  // timed calls per buffer size
};

// Parses "[ranks [rounds]]"; ends the program if the arguments are invalid.
BenchSize BenchSizeFromArguments(int argc, char** argv);

// Runs `body` in one process per rank. Each process is pinned to one core; the ranks take the cores in turn. Returns 0 if all
// processes succeeded, else 1.
int RunRankProcesses(int32_t ranks, const std::function<void(int32_t rank)>& body);

// data (count) = sum over the ranks, complete on return.
using AllReduce = std::function<void(float* data, int64_t count)>;

// Call on every rank. Rank 0 prints, for 4 KiB to 16 MiB: the wall time of a call (median, 10th and 90th percentile),
// bytes divided by the median, CPU time per wall time of the process and of the waiting thread. Then it prints the CPU
// time of half a second of waiting for a late peer.
void MeasureAllReduce(int32_t rank, int rounds, const AllReduce& all_reduce);

}  // namespace lynx

#endif  // LYNX_BENCH_ALL_REDUCE_BENCH_H_
