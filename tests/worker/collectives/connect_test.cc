// Finding each other: late peers, missing peers, wrong peers and strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "planner/layout_schedule.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/socket.h"
#include "worker/collectives/wire.h"

namespace lynx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Nanos kShort{300'000'000};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A connected socket to `address` without any introduction.
OwnedFd Stranger(const PeerAddress& address) {
  absl::StatusOr<OwnedFd> fd = BeginConnect(address);
  EXPECT_TRUE(fd.ok());
  pollfd polled{fd->get(), POLLOUT, 0};
  EXPECT_EQ(poll(&polled, 1, 10'000), 1);
  EXPECT_EQ(ConnectResult(fd->get()), 0);
  return *std::move(fd);
}

void ExpectAllReduceWorks(const std::vector<CommunicatorOptions>& options) {
  RunRanks(options, [](int32_t, Communicator& communicator) {
    float value = 1;
    const TransferTicket ticket = *communicator.StartAllReduce(Group::kWorld, &value, 1);
    ASSERT_TRUE(communicator.Wait(ticket).ok());
    EXPECT_EQ(value, 3.0f);
  });
}

TEST(ConnectTest, PeersMayStartAtAnyTime) {
  const std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  OnThreads(3, [&](int32_t rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 0 : 50 * rank + 50));
    const absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options[rank]);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    EXPECT_TRUE((*communicator)->Barrier().ok());
  });
}

TEST(ConnectTest, ContextParallelismIsRefused) {
  CommunicatorOptions options;
  options.listen_fd = ListenTcp("127.0.0.1")->fd;
  options.peers = {{"127.0.0.1", 1}, {"127.0.0.1", 2}};
  options.layout = {.cp = 2};
  const absl::Status status = ConnectTcp(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("context parallelism"));
}

// Ranks that are planned otherwise in any way must not train together.
TEST(ConnectTest, APeerWithAnotherScheduleIsRefused) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.pp = 2});
  options[1].layout.schedule = ScheduleKind::kGpipe;
  OnThreads(2, [&](int32_t rank) {
    options[rank].connect_timeout = Nanos(2'000'000'000);
    const absl::Status status = ConnectTcp(options[rank]).status();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr("layout tp1 pp2 dp1"));
    EXPECT_THAT(Message(status), HasSubstr("gpipe"));
  });
}

TEST(ConnectTest, APeerWithAnotherCustomScheduleIsRefused) {
  ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kCustom};
  ASSERT_TRUE(SetCustomSchedule("custom ranks=2 microbatches=2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", layout).ok());
  std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
  ASSERT_TRUE(
      SetCustomSchedule("custom ranks=2 microbatches=2\n0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n", options[1].layout).ok());
  OnThreads(2, [&](int32_t rank) {
    options[rank].connect_timeout = Nanos(2'000'000'000);
    EXPECT_THAT(Message(ConnectTcp(options[rank]).status()), HasSubstr("another custom schedule was offered"));
  });
}

TEST(ConnectTest, APeerWhoseSocketIsNotThereYetIsTriedAgain) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  // Rank 0's port is free for a while, as before its process has started.
  close(options[0].listen_fd);
  OnThreads(2, [&](int32_t rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(options[0].peers[0].port));
      const int on = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      ASSERT_EQ(listen(fd, 10), 0);
      options[0].listen_fd = fd;
    }
    const absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options[rank]);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    EXPECT_TRUE((*communicator)->Barrier().ok());
  });
}

TEST(ConnectTest, TheDeadlineNamesWhoIsMissing) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{2, 2, 1});
  for (CommunicatorOptions& of_rank : options) of_rank.connect_timeout = kShort;
  // Rank 2 never comes. Of the others, 0 and 3 talk to it (stage boundary, tensor group), and 1 in the world's ring.
  OnThreads(4, [&](int32_t rank) {
    if (rank == 2) return;
    const absl::Status status = ConnectTcp(options[rank]).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 2 (stage 1, tp 0) at 127.0.0.1:"),
                                       HasSubstr("misses 1 peer after 300.0 ms"), Not(HasSubstr("; rank"))));
  });
  close(options[2].listen_fd);
}

TEST(ConnectTest, AnotherGenerationIsRefusedWithAReason) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[0].generation = Generation(4);
  options[1].generation = Generation(3);
  options[0].connect_timeout = kShort;
  OnThreads(2, [&](int32_t rank) {
    const absl::Status status = ConnectTcp(options[rank]).status();
    EXPECT_THAT(Message(status), HasSubstr("generation 3 of job 'job-1' was offered, generation 4 runs here"));
    if (rank == 0) {
      // The right one may still come: rank 0 waits for it until its deadline.
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(Message(status), HasSubstr("rank 0 (stage 0, tp 0) at 127.0.0.1:"));
    }
  });
}

TEST(ConnectTest, AnotherJobIsRefused) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[1].job = JobId("job-2");
  options[0].connect_timeout = kShort;
  OnThreads(2, [&](int32_t rank) {
    EXPECT_THAT(Message(ConnectTcp(options[rank]).status()),
                HasSubstr("job 'job-2' was offered, job 'job-1' runs here"));
  });
}

TEST(ConnectTest, AnotherLayoutIsRefused) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[1].layout = ParallelLayout{.pp = 2};
  options[0].connect_timeout = kShort;
  OnThreads(2, [&](int32_t rank) {
    EXPECT_THAT(Message(ConnectTcp(options[rank]).status()),
                HasSubstr("layout tp1 pp2 dp1 was offered, layout tp2 pp1 dp1 runs here"));
  });
}

TEST(ConnectTest, AWrongAddressIsRefused) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  for (CommunicatorOptions& of_rank : options) of_rank.connect_timeout = kShort;
  std::swap(options[2].peers[0], options[2].peers[1]);
  OnThreads(3, [&](int32_t rank) {
    const absl::Status status = ConnectTcp(options[rank]).status();
    if (rank == 2) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(Message(status), HasSubstr("which expects none; check the peers' addresses"));
    } else {
      EXPECT_FALSE(status.ok());
    }
  });
}

TEST(ConnectTest, AnotherProtocolVersionIsRefused) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[0].connect_timeout = kShort;
  std::thread rank0([&] { EXPECT_FALSE(ConnectTcp(options[0]).ok()); });
  Hello hello;
  hello.version = 99;
  hello.job = options[0].job;
  const std::string bytes = EncodeHello(hello);
  const OwnedFd fd = Stranger(options[0].peers[0]);
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string reply;
  char buffer[2048];
  pollfd polled{fd.get(), POLLIN, 0};
  while (poll(&polled, 1, 10'000) == 1) {
    const ssize_t got = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    reply.append(buffer, got);
  }
  EXPECT_THAT(reply, HasSubstr("protocol version 99 was offered"));
  rank0.join();
  close(options[1].listen_fd);
}

TEST(ConnectTest, StrangersDisturbNobody) {
  const std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  std::vector<OwnedFd> strangers;
  for (int round = 0; round < 40; ++round) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      strangers.push_back(Stranger(options[rank].peers[rank]));
      const std::string text = round % 4 == 0   ? "GET / HTTP/1.1\r\n\r\n"
                               : round % 4 == 1 ? "LX"
                               : round % 4 == 2 ? EncodeHello(Hello{})
                                                : "";
      send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (round % 8 == 3) strangers.back().Close();
    }
  }
  ExpectAllReduceWorks(options);
}

TEST(ConnectTest, MoreIdleStrangersThanAreKeptDisturbNobody) {
  const std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  std::vector<OwnedFd> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(Stranger(options[0].peers[0]));
  ExpectAllReduceWorks(options);
}

TEST(ConnectTest, BadOptionsAreNamed) {
  CommunicatorOptions options;
  options.layout = ParallelLayout{.tp = 2};
  options.peers = {{"127.0.0.1", 1}};
  EXPECT_THAT(Message(ConnectTcp(options).status()), HasSubstr("1 peer addresses for 2 ranks"));
  options.peers.push_back({"127.0.0.1", 2});
  options.rank = 2;
  EXPECT_THAT(Message(ConnectTcp(options).status()), HasSubstr("rank 2 is not in 0..1"));
  options.rank = 1;
  EXPECT_THAT(Message(ConnectTcp(options).status()), HasSubstr("listen_fd -1 of rank 1 is not open"));
  EXPECT_THAT(Message(ListenTcp("example.org").status()), HasSubstr("'example.org' is not a numeric"));
}

TEST(ConnectTest, VersionSixWorksToo) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  const absl::StatusOr<ListeningSocket> v6 = ListenTcp("::1");
  if (!v6.ok()) GTEST_SKIP() << "this machine has no IPv6 loopback: " << v6.status();
  close(options[0].listen_fd);
  options[0].listen_fd = v6->fd;
  for (CommunicatorOptions& of_rank : options) of_rank.peers[0] = {"::1", v6->port};
  RunRanks(options, [](int32_t, Communicator& communicator) { EXPECT_TRUE(communicator.Barrier().ok()); });
}

}  // namespace
}  // namespace lynx
