#include "bench/all_reduce_bench.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/units.h"

namespace lynx {
namespace {

double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The worker pins ranks in the same way. Otherwise the scheduler tends to put both ends of a connection on one core.
void PinToCore(int32_t rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank % std::max(1, static_cast<int>(std::thread::hardware_concurrency())), &cores);
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) std::perror("sched_setaffinity");
}

void MeasureSize(int32_t rank, Bytes bytes, int rounds, const AllReduce& all_reduce) {
  const int64_t count = bytes.value / static_cast<int64_t>(sizeof(float));
  // Zeros, so that the sums stay finite after any number of rounds. The time of an addition does not depend on the
  // values.
  std::vector<float> data(count, 0.0f);
  for (int i = 0; i < 3; ++i) all_reduce(data.data(), count);
  std::vector<double> seconds;
  const double process_before = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  const double thread_before = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
  const double wall_before = SecondsOf(CLOCK_MONOTONIC);
  for (int i = 0; i < rounds; ++i) {
    const double begin = SecondsOf(CLOCK_MONOTONIC);
    all_reduce(data.data(), count);
    seconds.push_back(SecondsOf(CLOCK_MONOTONIC) - begin);
  }
  const double wall = SecondsOf(CLOCK_MONOTONIC) - wall_before;
  const double process = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  const double waiting = SecondsOf(CLOCK_THREAD_CPUTIME_ID) - thread_before;
  if (rank != 0) return;
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("| %s | %.3f | %.3f | %.3f | %.2f | %.0f%% | %.1f%% |\n", FormatBytes(bytes).c_str(), median * 1e3,
              seconds[seconds.size() / 10] * 1e3, seconds[seconds.size() * 9 / 10] * 1e3,
              static_cast<double>(bytes.value) / median * 1e-9, process / wall * 100, waiting / wall * 100);
  std::fflush(stdout);
}

void MeasureWaiting(int32_t rank, const AllReduce& all_reduce) {
  std::vector<float> data(1024, 0.0f);
  all_reduce(data.data(), 1024);
  if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double process_before = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  const double wall_before = SecondsOf(CLOCK_MONOTONIC);
  all_reduce(data.data(), 1024);
  const double wall = SecondsOf(CLOCK_MONOTONIC) - wall_before;
  const double process = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  if (rank == 0) std::printf("\nwaiting %.0f ms for a late peer: %.2f ms of CPU\n", wall * 1e3, process * 1e3);
}

}  // namespace

BenchSize BenchSizeFromArguments(int argc, char** argv) {
  BenchSize size;
  if (argc > 1) size.ranks = std::atoi(argv[1]);
  if (argc > 2) size.rounds = std::atoi(argv[2]);
  if (size.ranks < 2 || size.ranks > 64 || size.rounds < 10) {
    std::fprintf(stderr, "usage: %s [ranks (2..64) [rounds (>= 10)]]\n", argv[0]);
    std::exit(2);
  }
  return size;
}

int RunRankProcesses(int32_t ranks, const std::function<void(int32_t)>& body) {
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      PinToCore(rank);
      body(rank);
      std::exit(0);
    }
    children.push_back(child);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  return failed ? 1 : 0;
}

void MeasureAllReduce(int32_t rank, int rounds, const AllReduce& all_reduce) {
  if (rank == 0) {
    std::printf("| size | median ms | p10 ms | p90 ms | GB/s | CPU, rank | CPU, waiting thread |\n");
    std::printf("|---|---|---|---|---|---|---|\n");
  }
  for (Bytes bytes = kKiB * 4; bytes <= kMiB * 16; bytes = bytes * 4) MeasureSize(rank, bytes, rounds, all_reduce);
  MeasureWaiting(rank, all_reduce);
}

}  // namespace lynx
