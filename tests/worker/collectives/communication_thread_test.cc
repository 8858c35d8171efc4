#include "worker/collectives/communication_thread.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "common/rng.h"
#include "worker/collectives/group.h"
#include "worker/collectives/wire.h"

namespace lynx {
namespace {

const ParallelLayout kPair{.tp = 2};

// Rank 0 of a pair, with the other ends of its connections in the test's hands.
struct Ends {
  std::vector<Link> own;
  std::vector<Link> other;
};
Ends MakeEnds() {
  Ends ends;
  for (const LinkKey& key : LinksOf(kPair, 0)) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ends.own.push_back({key, OwnedFd(pair[0])});
    ends.other.push_back({key, OwnedFd(pair[1])});
  }
  return ends;
}

// The order to end may come while an operation that was just posted fails. Without care the thread takes the order
// with the news of the failure, forgets it and sleeps for ever; the destructor then never returns.
TEST(CommunicationThread, EndsWhenItIsToldToInTheMomentOfAFailure) {
  const std::string garbage(kOperationHeaderBytes, 'x');
  float value = 0;
  const int32_t lane = LaneTable(kPair, 0).Ring(Group::kTensor);
  for (uint64_t round = 0; round < 4000; ++round) {
    Ends ends = MakeEnds();
    for (const Link& link : ends.other) {
      if (link.key.channel != Channel::kTensor) continue;
      ASSERT_EQ(send(link.fd.get(), garbage.data(), garbage.size(), 0), static_cast<ssize_t>(garbage.size()));
    }
    TransferBoard board;
    auto thread = std::make_unique<CommunicationThread>(CommunicationThreadOptions{kPair, 0, Nanos(0)},
                                                        std::move(ends.own), &board);
    ASSERT_TRUE(board.Post({0, lane, OperationKind::kAllReduce, reinterpret_cast<char*>(&value), 1}).ok());
    // A different moment in every round.
    const Nanos begin = MonotonicNow();
    while (MonotonicNow() - begin < Nanos(static_cast<int64_t>(Mix64(round) % 100'000))) {
    }
    thread.reset();
  }
}

}  // namespace
}  // namespace lynx
