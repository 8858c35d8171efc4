// Measures what encryption costs: all-reduce between rank processes on loopback, over plain and over encrypted connections, in
// turn. Prints a Markdown table with medians, 10th and 90th percentiles, and the ratio of the medians.
//
//   encryption_bench [ranks [rounds]]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/all_reduce_bench.h"
#include "common/units.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/peer_proof.h"

namespace lynx {
namespace {

constexpr std::array<bool, 2> kEncrypt{false, true};

template <class T>
T ValueOrExit(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

// The times of the all-reduces over one kind of connection, sorted, in milliseconds.
struct Times {
  std::vector<double> ms;
  double at(size_t percent) const { return ms[ms.size() * percent / 100]; }
};

double OnceMs(worker::Communicator& communicator, std::vector<float>& data) {
  const auto begin = std::chrono::steady_clock::now();
  const auto count = static_cast<int64_t>(data.size());
  ValueOrExit(communicator.Wait(ValueOrExit(communicator.StartAllReduce(Group::kTensor, data.data(), count))));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void MeasureSize(int32_t rank, Bytes bytes, int rounds,
                 const std::array<std::unique_ptr<worker::Communicator>, kEncrypt.size()>& ways) {
  std::vector<float> data(static_cast<size_t>(bytes.value) / sizeof(float), 0.0f);
  std::array<Times, kEncrypt.size()> times;
  for (int round = -3; round < rounds; ++round) {  // the first three are not counted
    for (size_t way = 0; way < ways.size(); ++way) {
      const double ms = OnceMs(*ways[way], data);
      if (round >= 0) times[way].ms.push_back(ms);
    }
  }
  if (rank != 0) return;
  for (Times& of_way : times) std::sort(of_way.ms.begin(), of_way.ms.end());
  std::printf("| %s |", FormatBytes(bytes).c_str());
  for (const Times& of_way : times) std::printf(" %.3f (%.3f-%.3f) |", of_way.at(50), of_way.at(10), of_way.at(90));
  std::printf(" %.2f |\n", times[1].at(50) / times[0].at(50));
  std::fflush(stdout);
}

int Main(const BenchSize& size) {
  std::array<worker::CommunicatorOptions, kEncrypt.size()> options;
  std::array<std::vector<int>, kEncrypt.size()> listening;
  for (size_t way = 0; way < options.size(); ++way) {
    options[way].job = JobId("bench");
    options[way].generation = Generation(1);
    options[way].secret = worker::NewConnectionSecret();
    options[way].layout = ParallelLayout{.tp = size.ranks};
    options[way].encrypt = kEncrypt[way];
    for (int32_t rank = 0; rank < size.ranks; ++rank) {
      const worker::ListeningSocket socket = ValueOrExit(worker::ListenTcp("127.0.0.1"));
      listening[way].push_back(socket.fd);
      options[way].peers.push_back({"127.0.0.1", socket.port});
    }
  }
  return RunRankProcesses(size.ranks, [&](int32_t rank) {
    std::array<std::unique_ptr<worker::Communicator>, kEncrypt.size()> ways;
    for (size_t way = 0; way < ways.size(); ++way) {
      options[way].rank = rank;
      options[way].listen_fd = listening[way][static_cast<size_t>(rank)];
      ways[way] = ValueOrExit(worker::ConnectTcp(options[way]));
    }
    if (rank == 0) std::printf("| size | plain ms | encrypted ms | ratio |\n|---|---|---|---|\n");
    for (Bytes bytes = kKiB * 4; bytes <= kMiB * 16; bytes = bytes * 4) MeasureSize(rank, bytes, size.rounds, ways);
  });
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) { return lynx::Main(lynx::BenchSizeFromArguments(argc, argv)); }
