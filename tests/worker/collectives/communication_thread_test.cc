#include "worker/collectives/communication_thread.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>

#include "common/rng.h"
#include "worker/collectives/group.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

const ParallelLayout kPair{.tp = 2};

// The connections of rank 0 of a pair. The test holds the other ends.
struct Ends {
  std::vector<Link> own;
  std::vector<Link> other;
};
Ends MakeEnds() {
  Ends ends;
  for (const LinkKey& key : LinksOf(kPair, 0)) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ends.own.push_back({key, LinkStream(UniqueFd(pair[0]))});
    ends.other.push_back({key, LinkStream(UniqueFd(pair[1]))});
  }
  return ends;
}

// The order to end may come while an operation that was just posted fails. Suppose that the thread takes this order together
// with the news of the failure, forgets it and sleeps. Then the destructor never returns.
TEST(CommunicationThread, EndsWhenItIsToldToInTheMomentOfAFailure) {
  const std::string garbage(kOperationHeaderBytes, 'x');
  float value = 0;
  const int32_t lane = LaneTable(kPair, 0).Ring(Group::kTensor);
  for (uint64_t round = 0; round < 4000; ++round) {
    Ends ends = MakeEnds();
    for (const Link& link : ends.other) {
      if (link.key.channel != Channel::kTensor) continue;
      ASSERT_EQ(send(link.stream.fd(), garbage.data(), garbage.size(), 0), static_cast<ssize_t>(garbage.size()));
    }
    TransferBoard board;
    auto thread =
        std::make_unique<CommunicationThread>(CommunicationThreadOptions{.layout = kPair}, std::move(ends.own), &board);
    ASSERT_TRUE(board.Post({0, lane, OperationKind::kAllReduce, &value, 1}).ok());
    // The order comes at a different moment in every round.
    const Nanos begin = MonotonicNow();
    while (MonotonicNow() - begin < Nanos(static_cast<int64_t>(Mix64(round) % 100'000))) {}
    thread.reset();
  }
}

// Returns the two ends of a TCP connection over the loopback.
std::pair<UniqueFd, UniqueFd> TcpPair() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), any, length), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), any, &length), 0);
  UniqueFd one(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect(one.get(), any, length), 0);
  UniqueFd other(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
  EXPECT_TRUE(ConfigureLink(other.get(), 0).ok());
  return {std::move(one), std::move(other)};
}

// The bytes arrive in pieces that are too small for a wake-up, but they still count as progress: a slow link is not an idle
// link.
TEST(CommunicationThread, ALinkThatTricklesIsNotIdle) {
  constexpr int64_t kCount = 64 << 10;
  constexpr Nanos kIdle{300'000'000};
  Ends ends = MakeEnds();
  UniqueFd peer;
  for (Link& link : ends.own) {
    if (link.key.channel != Channel::kTensor) continue;
    UniqueFd own;
    std::tie(peer, own) = TcpPair();
    link.stream = LinkStream(std::move(own));
  }
  std::vector<float> values(kCount, 1.0f);
  TransferBoard board;
  CommunicationThread thread({.layout = kPair, .idle_timeout = kIdle}, std::move(ends.own), &board);
  const absl::StatusOr<TransferTicket> ticket =
      board.Post({0, LaneTable(kPair, 0).Ring(Group::kTensor), OperationKind::kAllReduce, values.data(), kCount});
  ASSERT_TRUE(ticket.ok());
  const OperationHeaderBytes header = EncodeOperationHeader({OperationKind::kAllReduce, 0, kCount});
  ASSERT_EQ(send(peer.get(), header.data(), header.size(), 0), static_cast<ssize_t>(header.size()));
  // Sends a few bytes at a time, for twice as long as a link may be idle. Then sends the rest.
  std::vector<float> theirs(kCount, 2.0f);
  const char* at = reinterpret_cast<const char*>(theirs.data());
  int64_t left = kCount * static_cast<int64_t>(sizeof(float));
  const auto hand_over = [&](int64_t bytes) {
    ASSERT_EQ(send(peer.get(), at, static_cast<size_t>(bytes), 0), bytes);
    at += bytes;
    left -= bytes;
  };
  for (int i = 0; i < 12; ++i) {
    hand_over(100);
    usleep(50'000);
  }
  hand_over(left);
  ASSERT_TRUE(board.Await(*ticket).ok());
  EXPECT_EQ(values.front(), 2.0f);  // the other member sends this sum; rank 0 sums only the other half
  EXPECT_EQ(values.back(), 3.0f);
}

// The other end of the control connection, and a thread that waits for an all-reduce of which no byte arrives.
struct Waiting {
  explicit Waiting(Nanos silence_limit, Nanos connect_timeout = Nanos(0), Nanos progress_limit = Nanos(0)) : ends(MakeEnds()) {
    for (const Link& link : ends.other) {
      if (link.key.channel == Channel::kControl) control = link.stream.fd();
    }
    thread = std::make_unique<CommunicationThread>(CommunicationThreadOptions{.layout = kPair,
                                                                              .silence_limit = silence_limit,
                                                                              .progress_limit = progress_limit,
                                                                              .connect_timeout = connect_timeout},
                                                   std::move(ends.own), &board);
    const auto posted = board.Post({0, LaneTable(kPair, 0).Ring(Group::kTensor), OperationKind::kAllReduce, &value, 1});
    EXPECT_TRUE(posted.ok());
    ticket = *posted;
  }
  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(control, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  Ends ends;
  int control = -1;
  float value = 0;
  TransferBoard board;
  std::unique_ptr<CommunicationThread> thread;
  TransferTicket ticket;
};

const std::string kSign = EncodeNotice({.kind = NoticeKind::kLives});

// The test measures no time, so a slow machine only makes it longer.
TEST(CommunicationThread, APeerWhoseSignsOfLifeEndIsLost) {
  Waiting waiting(Nanos(200'000'000));
  waiting.Send(kSign.substr(0, 3));  // the notice arrives in several parts
  waiting.Send(kSign.substr(3) + kSign + kSign);
  EXPECT_EQ(waiting.board.Await(waiting.ticket).status(),
            absl::DeadlineExceededError("rank 1 (stage 0, tp 1) has given no sign of life for 200.0 ms during "
                                        "all-reduce 0 of the tensor group"));
}

TEST(CommunicationThread, APeerThatNeverGivesASignIsLostToo) {
  Waiting waiting(Nanos(100'000'000), Nanos(100'000'000));
  EXPECT_EQ(waiting.board.Await(waiting.ticket).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(CommunicationThread, WithoutALimitSignsAreHeardAndMeanNothing) {
  Waiting waiting(Nanos(0));
  waiting.Send(kSign + kSign);
  waiting.Send(EncodeNotice({NoticeKind::kGivesUp, absl::CancelledError("enough")}));
  EXPECT_EQ(waiting.board.Await(waiting.ticket).status(), absl::CancelledError("enough"));
}

TEST(CommunicationThread, APeerThatMayStillConnectIsWaitedFor) {
  Waiting waiting(Nanos(50'000'000), Nanos(600'000'000'000));
  // The thread still sends signs of life, which shows that it still waits for the late peer.
  std::string signs(20 * kSign.size(), '\0');
  size_t got = 0;
  while (got < signs.size()) {
    const ssize_t more = recv(waiting.control, signs.data() + got, signs.size() - got, 0);
    ASSERT_NE(more, 0) << "it gave up";
    if (more > 0)
      got += static_cast<size_t>(more);
    else
      usleep(1000);
  }
  for (size_t i = 0; i < signs.size(); i += kSign.size()) {
    const std::optional<Notice> notice = DecodeNotice(signs.substr(i, kSign.size()));
    ASSERT_TRUE(notice.has_value());
    EXPECT_EQ(notice->kind, NoticeKind::kLives);
  }
  waiting.Send(EncodeNotice({NoticeKind::kGivesUp, absl::CancelledError("enough")}));
  EXPECT_EQ(waiting.board.Await(waiting.ticket).status(), absl::CancelledError("enough"));
}

// The test sends signs of life for three times the progress limit. A sign reports what the peer does.
constexpr Nanos kLong{60'000'000'000}, kProgressLimit{200'000'000};
void Signs(const Waiting& waiting, const std::function<ProgressSign(int64_t)>& sign) {
  for (int64_t i = 0; i < 30; ++i) {
    const std::string bytes = EncodeNotice({.kind = NoticeKind::kLives, .progress = sign(i)});
    // When the thread has found that the peer hangs, the connection is closed.
    if (send(waiting.control, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
    usleep(20'000);
  }
}

TEST(CommunicationThread, APeerThatOnlyLivesIsNamed) {
  Waiting waiting(kLong, Nanos(0), kProgressLimit);
  Signs(waiting, [](int64_t) { return ProgressSign{.made = 7}; });
  EXPECT_EQ(
      waiting.board.Await(waiting.ticket).status(),
      absl::DeadlineExceededError("rank 1 (stage 0, tp 1) lives, but has made no progress for 200.0 ms while rank 0 (stage "
                                  "0, tp 0) waits for it during all-reduce 0 of the tensor group"));
}

TEST(CommunicationThread, APeerThatHasReasonsIsWaitedFor) {
  const std::function<ProgressSign(int64_t)> reasons[] = {
      [](int64_t i) { return ProgressSign{.made = i}; },     // it makes progress
      [](int64_t) { return ProgressSign{.waits = true}; },   // the peer waits for another rank
      [](int64_t) { return ProgressSign{.quiet = kLong}; },  // the peer says that its work cannot show progress
  };
  for (const auto& reason : reasons) {
    Waiting waiting(kLong, Nanos(0), kProgressLimit);
    Signs(waiting, reason);
    waiting.Send(EncodeNotice({NoticeKind::kGivesUp, absl::CancelledError("enough")}));
    EXPECT_EQ(waiting.board.Await(waiting.ticket).status(), absl::CancelledError("enough"));
  }
}

TEST(CommunicationThread, AProgressLimitCountsFromWhenItIsSet) {
  Waiting waiting(kLong);
  Signs(waiting, [](int64_t) { return ProgressSign{.made = 7}; });
  waiting.thread->SetProgressLimit(kLong);
  Signs(waiting, [](int64_t) { return ProgressSign{.made = 7}; });
  waiting.thread->SetProgressLimit(kProgressLimit);
  Signs(waiting, [](int64_t) { return ProgressSign{.made = 7}; });
  EXPECT_EQ(waiting.board.Await(waiting.ticket).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(CommunicationThread, ARankThatWaitsSaysSo) {
  Waiting waiting(Nanos(100'000'000), kLong);
  std::thread waiter([&] { EXPECT_EQ(waiting.board.Await(waiting.ticket).status(), absl::CancelledError("enough")); });
  std::string bytes(kSign.size(), '\0');
  bool waits = false;
  while (!waits) {
    if (recv(waiting.control, bytes.data(), bytes.size(), MSG_WAITALL) == static_cast<ssize_t>(bytes.size())) {
      waits = DecodeNotice(bytes)->progress.waits;
    } else {
      usleep(1000);
    }
  }
  waiting.Send(EncodeNotice({NoticeKind::kGivesUp, absl::CancelledError("enough")}));
  waiter.join();
}

}  // namespace
}  // namespace lynx::worker
