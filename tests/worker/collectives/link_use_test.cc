// Tests what the kernel says about the use of links between hosts. Loopback addresses stand for hosts.
#include <gtest/gtest.h>

#include "tests/worker/collectives/rank_threads.h"

namespace lynx::worker {
namespace {

// Returns the options of a pipeline of two ranks. `second_host`: the loopback address of the second rank, which stands for its
// host.
std::vector<CommunicatorOptions> TwoStages(const char* second_host) {
  std::vector<CommunicatorOptions> options = LoopbackOptions({.pp = 2});
  const absl::StatusOr<ListeningSocket> socket = ListenTcp(second_host);
  EXPECT_TRUE(socket.ok()) << socket.status();
  options[1].listen_fd = socket->fd;
  for (CommunicatorOptions& of_rank : options) of_rank.peers[1] = {second_host, socket->port};
  return options;
}

// The first stage sends `count` floats. Then all ranks wait for each other in a barrier.
void SendToNext(int32_t rank, Communicator& communicator, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count));
  const absl::StatusOr<TransferTicket> ticket = rank == 0 ? communicator.StartSend(Group::kNextStage, data.data(), count)
                                                          : communicator.StartRecv(Group::kPreviousStage, data.data(), count);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  ASSERT_TRUE(communicator.Wait(*ticket).ok());
  ASSERT_TRUE(communicator.Barrier().ok());
}

constexpr int64_t kCount = 500'000;
constexpr int64_t kBytes = kCount * 4;

TEST(LinkUses, AreThoseToPeersOnOtherHosts) {
  RunRanks(TwoStages("127.0.0.2"), [](int32_t rank, Communicator& communicator) {
    EXPECT_TRUE(communicator.LinkUses().empty()) << "nothing has been sent";
    SendToNext(rank, communicator, kCount);
    const std::vector<LinkUse> uses = communicator.LinkUses();
    ASSERT_EQ(uses.size(), 1u);
    EXPECT_EQ(uses[0].peer, 1 - rank);
    if (rank == 0) {
      EXPECT_GT(uses[0].bytes, kBytes / 2) << "what is acknowledged; the last of it may not be yet";
    } else {
      EXPECT_LT(uses[0].bytes, kBytes / 100) << "it has sent next to nothing";
    }
    SendToNext(rank, communicator, kCount);
    if (rank == 0) EXPECT_GT(communicator.LinkUses()[0].bytes, kBytes * 3 / 2);
  });
}

TEST(LinkUses, OfRanksOfOneHostThereAreNone) {
  RunRanks(TwoStages("127.0.0.1"), [](int32_t rank, Communicator& communicator) {
    SendToNext(rank, communicator, kCount);
    EXPECT_TRUE(communicator.LinkUses().empty());
  });
}

TEST(LinkUses, ASlowLinkIsBusyForAsLongAsItTakes) {
  std::vector<CommunicatorOptions> options = TwoStages("127.0.0.2");
  constexpr int64_t kRate = 10'000'000;
  for (CommunicatorOptions& of_rank : options) of_rank.pacing_bytes_per_second = kRate;
  RunRanks(options, [](int32_t rank, Communicator& communicator) {
    SendToNext(rank, communicator, kCount);
    if (rank != 0) return;
    const double seconds = static_cast<double>(communicator.LinkUses().at(0).busy.value) * 1e-9;
    EXPECT_GE(seconds, 0.5 * static_cast<double>(kBytes) / kRate);
  });
}

}  // namespace
}  // namespace lynx::worker
