// All-reduce between rank processes on loopback: median time, bandwidth, and the CPU it takes.
//
//   collectives_bench [ranks [rounds]]        2 or more ranks, default 2; rounds per size, default 50
//
// Each rank is a process of its own. Prints a Markdown table. "GB/s" is the size of the buffer over the time. "CPU, rank"
// is the process's CPU time per call over the call's wall time; "CPU, waiting" is that of the thread that waits. The last
// line is a rank that waits half a second for a peer that has not started.
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "worker/collectives/communicator.h"

namespace lynx {
namespace {

double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

[[noreturn]] void Give(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void AllReduceNow(Communicator& communicator, std::vector<float>& data, int64_t count) {
  const absl::StatusOr<TransferTicket> ticket = communicator.StartAllReduce(Group::kTensor, data.data(), count);
  if (!ticket.ok()) Give(ticket.status());
  const absl::StatusOr<TransferTimes> times = communicator.Wait(*ticket);
  if (!times.ok()) Give(times.status());
}

std::string SizeText(int64_t bytes) { return FormatBytes(Bytes(bytes)); }

void MeasureSize(int32_t rank, Communicator& communicator, int64_t bytes, int rounds) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  std::vector<float> data(count, 1.0f / 1024);
  for (int i = 0; i < 3; ++i) AllReduceNow(communicator, data, count);
  std::vector<double> seconds;
  const double process_before = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  const double thread_before = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
  const double wall_before = SecondsOf(CLOCK_MONOTONIC);
  for (int i = 0; i < rounds; ++i) {
    const double begin = SecondsOf(CLOCK_MONOTONIC);
    AllReduceNow(communicator, data, count);
    seconds.push_back(SecondsOf(CLOCK_MONOTONIC) - begin);
  }
  const double wall = SecondsOf(CLOCK_MONOTONIC) - wall_before;
  const double process = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  const double waiting = SecondsOf(CLOCK_THREAD_CPUTIME_ID) - thread_before;
  if (rank != 0) return;
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("| %s | %.3f | %.3f | %.3f | %.2f | %.0f%% | %.1f%% |\n", SizeText(bytes).c_str(), median * 1e3,
              seconds[seconds.size() / 10] * 1e3, seconds[seconds.size() * 9 / 10] * 1e3,
              static_cast<double>(bytes) / median * 1e-9, process / wall * 100, waiting / wall * 100);
  std::fflush(stdout);
}

void MeasureWaiting(int32_t rank, Communicator& communicator) {
  std::vector<float> data(1024, 1.0f);
  if (const absl::Status status = communicator.Barrier(); !status.ok()) Give(status);
  if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double process_before = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  const double wall_before = SecondsOf(CLOCK_MONOTONIC);
  AllReduceNow(communicator, data, 1024);
  const double wall = SecondsOf(CLOCK_MONOTONIC) - wall_before;
  const double process = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  if (rank == 0) std::printf("\nwaiting %.0f ms for a late peer: %.3f ms of CPU\n", wall * 1e3, process * 1e3);
}

void RunRank(const CommunicatorOptions& options, int rounds) {
  absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options);
  if (!communicator.ok()) Give(communicator.status());
  if (options.rank == 0) {
    std::printf("| size | median ms | p10 ms | p90 ms | GB/s | CPU, rank | CPU, waiting |\n|---|---|---|---|---|---|---|\n");
  }
  for (int64_t bytes = 4096; bytes <= 16 * 1024 * 1024; bytes *= 4) {
    MeasureSize(options.rank, **communicator, bytes, rounds);
  }
  MeasureWaiting(options.rank, **communicator);
  if (const absl::Status status = (*communicator)->Barrier(); !status.ok()) Give(status);
}

int Main(int32_t ranks, int rounds) {
  std::vector<CommunicatorOptions> all(ranks);
  std::vector<PeerAddress> peers;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const absl::StatusOr<ListeningSocket> socket = ListenTcp("127.0.0.1");
    if (!socket.ok()) Give(socket.status());
    all[rank].listen_fd = socket->fd;
    peers.push_back({"127.0.0.1", socket->port});
  }
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    all[rank].job = JobId("bench");
    all[rank].generation = Generation(1);
    all[rank].layout = ParallelLayout{ranks, 1, 1};
    all[rank].rank = rank;
    all[rank].peers = peers;
    const pid_t child = fork();
    if (child == 0) {
      RunRank(all[rank], rounds);
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

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 50;
  if (ranks < 2 || ranks > 64 || rounds < 10) {
    std::fprintf(stderr, "usage: collectives_bench [ranks (2..64) [rounds (>= 10)]]\n");
    return 2;
  }
  return lynx::Main(ranks, rounds);
}
