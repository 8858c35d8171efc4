#include "tests/worker/collectives/rank_threads.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/check.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {

std::vector<CommunicatorOptions> LoopbackOptions(const ParallelLayout& layout) {
  std::vector<PeerAddress> peers;
  std::vector<int> listening;
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const absl::StatusOr<ListeningSocket> socket = ListenTcp("127.0.0.1");
    LYNX_CHECK(socket.ok());
    peers.push_back({"127.0.0.1", socket->port});
    listening.push_back(socket->fd);
  }
  std::vector<CommunicatorOptions> all;
  const std::string secret = NewConnectionSecret();
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    CommunicatorOptions options;
    options.job = JobId("job-1");
    options.generation = Generation(1);
    options.secret = secret;
    options.layout = layout;
    options.rank = rank;
    options.listen_fd = listening[rank];
    options.peers = peers;
    all.push_back(options);
  }
  return all;
}

void OnThreads(int32_t count, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(const std::vector<CommunicatorOptions>& options, const RankBody& body) {
  OnThreads(static_cast<int32_t>(options.size()), [&](int32_t rank) {
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options[rank]);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    body(rank, **communicator);
  });
}

void RunRanks(const ParallelLayout& layout, const RankBody& body) { RunRanks(LoopbackOptions(layout), body); }

}  // namespace lynx::worker
