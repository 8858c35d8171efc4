// Measures all-reduce between rank processes on loopback with Lynx's communicator.
//
//   collectives_bench [ranks [rounds]]
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/all_reduce_bench.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/peer_proof.h"

namespace lynx {
namespace {

template <class T>
T ValueOrExit(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

int Main(const BenchSize& size) {
  worker::CommunicatorOptions options;
  options.job = JobId("bench");
  options.generation = Generation(1);
  options.secret = worker::NewConnectionSecret();
  options.layout = ParallelLayout{.tp = size.ranks};
  std::vector<int> listening;
  for (int32_t rank = 0; rank < size.ranks; ++rank) {
    const worker::ListeningSocket socket = ValueOrExit(worker::ListenTcp("127.0.0.1"));
    listening.push_back(socket.fd);
    options.peers.push_back({"127.0.0.1", socket.port});
  }
  return RunRankProcesses(size.ranks, [&](int32_t rank) {
    options.rank = rank;
    options.listen_fd = listening[rank];
    const std::unique_ptr<worker::Communicator> communicator = ValueOrExit(worker::ConnectTcp(options));
    MeasureAllReduce(rank, size.rounds, [&](float* data, int64_t count) {
      ValueOrExit(communicator->Wait(ValueOrExit(communicator->StartAllReduce(Group::kTensor, data, count))));
    });
  });
}

}  // namespace
}  // namespace lynx

int main(int argc, char** argv) { return lynx::Main(lynx::BenchSizeFromArguments(argc, argv)); }
