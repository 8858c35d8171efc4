// Tests connecting with late peers, missing peers, wrong peers, and programs that are no peers (strangers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "planner/problem/layout_schedule.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/collectives/socket.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Nanos kShort{300'000'000};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Returns a socket that is connected to `address` and has sent nothing.
UniqueFd Stranger(const PeerAddress& address) {
  absl::StatusOr<UniqueFd> fd = BeginConnect(address);
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
  options.secret = NewConnectionSecret();
  options.layout = {.cp = 2};
  const absl::Status status = ConnectTcp(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("context parallelism"));
}

// Ranks must not train together if their plans differ in any way.
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
  ASSERT_TRUE(SetCustomSchedule("custom ranks=2 microbatches=2\n0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n", options[1].layout).ok());
  OnThreads(2, [&](int32_t rank) {
    options[rank].connect_timeout = Nanos(2'000'000'000);
    EXPECT_THAT(Message(ConnectTcp(options[rank]).status()), HasSubstr("another custom schedule was offered"));
  });
}

TEST(ConnectTest, APeerWhoseSocketIsNotThereYetIsTriedAgain) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  // For a while no process listens on rank 0's port, as if rank 0's process had not started yet.
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
  // Rank 2 never starts. Ranks 0 and 3 communicate with it directly (stage boundary, tensor group), and rank 1 communicates
  // with it in the world's ring.
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
      // The right peer may still connect, so rank 0 waits for it until the deadline.
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
    EXPECT_THAT(Message(ConnectTcp(options[rank]).status()), HasSubstr("job 'job-2' was offered, job 'job-1' runs here"));
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
  const UniqueFd fd = Stranger(options[0].peers[0]);
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

// Collects what a rank reports about strangers.
class Told {
 public:
  std::function<void(const std::string&)> Ears() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Reads `bytes` bytes, or fewer if the other side closes the connection before.
std::string ReadFrom(const UniqueFd& fd, size_t bytes) {
  std::string text;
  pollfd polled{fd.get(), POLLIN, 0};
  while (text.size() < bytes && poll(&polled, 1, 60'000) == 1) {
    char buffer[4096];
    const ssize_t got = recv(fd.get(), buffer, std::min(bytes - text.size(), sizeof(buffer)), 0);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

void SendTo(const UniqueFd& fd, std::string_view bytes) {
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

std::string TextOf(const Mac& mac) { return std::string(mac.data(), mac.size()); }

// Returns the Hello that rank 1 of two sends to rank 0, with a new nonce.
Hello HelloOf(const CommunicatorOptions& options) {
  Hello hello;
  hello.job = options.job;
  hello.generation = options.generation;
  hello.layout = options.layout;
  hello.from = 1;
  hello.to = 0;
  hello.nonce = NewNonce();
  return hello;
}

TEST(ConnectTest, APeerWithAnotherSecretIsNoPeer) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[1].secret = NewConnectionSecret();
  OnThreads(2, [&](int32_t rank) {
    options[rank].connect_timeout = kShort;
    const absl::Status status = ConnectTcp(options[rank]).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    if (rank == 1) EXPECT_THAT(Message(status), HasSubstr("does not know the secret of this generation of the job"));
    for (const CommunicatorOptions& any : options) EXPECT_THAT(Message(status), Not(HasSubstr(any.secret)));
  });
}

// A stranger that has recorded the messages of true peers must not get further than one that has not.
TEST(ConnectTest, ProofsThatAreSentBackOrSentAgainAreNone) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  Told told;
  options[0].tell = told.Ears();
  const std::string hello = EncodeHello(HelloOf(options[0]));
  std::thread rank0([&] {
    const absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options[0]);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    EXPECT_TRUE((*communicator)->Barrier().ok());
  });
  const auto challenge_of = [&](const UniqueFd& fd) {
    SendTo(fd, hello);
    const std::string bytes = ReadFrom(fd, kChallengeBytes);
    EXPECT_EQ(bytes.size(), kChallengeBytes);
    return DecodeChallenge(bytes).value();
  };
  const UniqueFd first = Stranger(options[0].peers[0]), second = Stranger(options[0].peers[0]),
                 third = Stranger(options[0].peers[0]);
  const Challenge heard = challenge_of(first);
  EXPECT_TRUE(SameMac(heard.proof, ProofOf(options[0].secret, ProofRole::kAccepts, hello, heard.nonce)));
  SendTo(first, TextOf(heard.proof));
  EXPECT_EQ(ReadFrom(first, 1), "") << "its own proof, sent back";
  const std::string once = TextOf(ProofOf(options[0].secret, ProofRole::kConnects, hello, heard.nonce));
  challenge_of(second);
  SendTo(second, once);
  EXPECT_EQ(ReadFrom(second, 1), "") << "a true proof of another connection";
  const Challenge asked = challenge_of(third);
  SendTo(third, TextOf(ProofOf(NewConnectionSecret(), ProofRole::kConnects, hello, asked.nonce)));
  EXPECT_EQ(ReadFrom(third, 1), "") << "of another secret";
  ASSERT_EQ(told.lines().size(), 3u);
  for (const std::string& line : told.lines()) {
    EXPECT_THAT(line, HasSubstr("turned away a connection from 127.0.0.1:"));
    EXPECT_THAT(line, HasSubstr("it says that it is rank 1, and does not know the secret of this generation"));
    EXPECT_THAT(line, Not(HasSubstr(options[0].secret)));
  }
  const absl::StatusOr<std::unique_ptr<Communicator>> peer = ConnectTcp(options[1]);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE((*peer)->Barrier().ok());
  rank0.join();
}

// A program that listens at a peer's address may send anything to a rank that connects. The rank must keep trying, because the
// true peer may still start at this address.
TEST(ConnectTest, WhoListensInAPeersPlaceEndsNothing) {
  for (const std::string& says :
       {EncodeHelloReply("go away"), EncodeChallenge({.nonce = NewNonce()}), std::string("HTTP/1.1 400 Bad\r\n")}) {
    std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
    options[1].connect_timeout = kShort;
    const UniqueFd listener(options[0].listen_fd);
    std::atomic<bool> over{false};
    std::thread impostor([&] {
      while (!over) {
        pollfd polled{listener.get(), POLLIN, 0};
        if (poll(&polled, 1, 20) < 1) continue;
        const UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL);
        ReadFrom(fd, kHelloBytes);
      }
    });
    const absl::Status status = ConnectTcp(options[1]).status();
    over = true;
    impostor.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
}

TEST(ConnectTest, StrangersDisturbNobody) {
  const std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  std::vector<UniqueFd> strangers;
  for (int round = 0; round < 40; ++round) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      strangers.push_back(Stranger(options[rank].peers[rank]));
      const std::string text = round % 4 == 0   ? "GET / HTTP/1.1\r\n\r\n"
                               : round % 4 == 1 ? "LX"
                               : round % 4 == 2 ? EncodeHello(Hello{})
                                                : "";
      send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (round % 8 == 3) strangers.back().Reset();
    }
  }
  ExpectAllReduceWorks(options);
}

TEST(ConnectTest, MoreIdleStrangersThanAreKeptDisturbNobody) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 3});
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(Stranger(options[0].peers[0]));
  Told told;
  options[0].tell = told.Ears();
  ExpectAllReduceWorks(options);
  ASSERT_EQ(told.lines().size(), 10u) << "of so many lines at most";
  EXPECT_THAT(told.lines().front(), HasSubstr("64 connections have proven nothing yet, and another one came"));
  EXPECT_THAT(told.lines().back(), HasSubstr("further ones are not told of"));
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
  EXPECT_THAT(Message(ConnectTcp(options).status()),
              HasSubstr("secret of the ranks' connections is not 64 hexadecimal digits"));
  options.secret = NewConnectionSecret();
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
}  // namespace lynx::worker
