// Tests what happens to the other ranks if a rank is lost, gives up, or runs another program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/worker/collectives/rank_threads.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

absl::Status AllReduceStatus(Communicator& communicator, Group group, int64_t count) {
  std::vector<float> data(count, 1.0f);
  const absl::StatusOr<TransferTicket> ticket = communicator.StartAllReduce(group, data.data(), count);
  if (!ticket.ok()) return ticket.status();
  return communicator.Wait(*ticket).status();
}

// Expects that every call of a communicator that has failed returns the first error.
void ExpectSameEverywhere(Communicator& communicator, const absl::Status& first) {
  float value = 0;
  EXPECT_EQ(communicator.StartAllReduce(Group::kWorld, &value, 1).status(), first);
  EXPECT_EQ(communicator.StartAllGather(Group::kWorld, &value, 0).status(), first);
  EXPECT_EQ(communicator.Barrier(), first);
  communicator.Abort(absl::InternalError("too late to matter"));
  EXPECT_EQ(communicator.Barrier(), first);
}

// A rank in a separate process, so that the test can really kill it. The process lives until the test kills it.
class RankProcess {
 public:
  RankProcess(const CommunicatorOptions& options, const std::function<void(Communicator&)>& body) : pid_(fork()) {
    if (pid_ != 0) {
      close(options.listen_fd);
      return;
    }
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectTcp(options);
    if (communicator.ok()) body(**communicator);
    while (true) pause();
  }
  ~RankProcess() {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  void Kill() const { Signal(SIGKILL); }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  pid_t pid_;
};

TEST(FailureTest, AKilledRankEndsEveryWaitOnEverySurvivor) {
  const ParallelLayout layout{2, 2, 1};
  std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
  const RankProcess victim(options[3],
                           [](Communicator& communicator) { AllReduceStatus(communicator, Group::kWorld, 100).IgnoreError(); });
  options.pop_back();
  std::atomic<int> waiting{0};
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    ASSERT_TRUE(AllReduceStatus(communicator, Group::kWorld, 100).ok());
    std::vector<float> data(500'000, 1.0f);
    // Rank 0 waits for rank 1, which never answers. Ranks 1 and 2 wait for the rank that is killed.
    absl::StatusOr<TransferTicket> ticket;
    if (rank == 0) ticket = communicator.StartAllReduce(Group::kTensor, data.data(), 500'000);
    if (rank == 1) ticket = communicator.StartRecv(Group::kNextStage, data.data(), 500'000);
    if (rank == 2) ticket = communicator.StartAllReduce(Group::kTensor, data.data(), 500'000);
    ASSERT_TRUE(ticket.ok());
    if (++waiting == 3) victim.Kill();
    const absl::Status status = communicator.Wait(*ticket).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("rank 3 (stage 1, tp 1) closed its connection"));
    ExpectSameEverywhere(communicator, status);
  });
}

TEST(FailureTest, TheMessageNamesTheOperation) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  const RankProcess victim(options[1], [](Communicator& communicator) {
    for (int i = 0; i < 3; ++i) AllReduceStatus(communicator, Group::kTensor, 10).IgnoreError();
  });
  options.pop_back();
  RunRanks(options, [&](int32_t, Communicator& communicator) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(AllReduceStatus(communicator, Group::kTensor, 10).ok());
    std::vector<float> data(2'000'000);
    const absl::StatusOr<TransferTicket> first = communicator.StartAllReduce(Group::kTensor, data.data(), 1'000'000);
    const absl::StatusOr<TransferTicket> second =
        communicator.StartAllReduce(Group::kTensor, data.data() + 1'000'000, 1'000'000);
    ASSERT_TRUE(first.ok() && second.ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that the first transfer is running
    victim.Kill();
    const absl::Status status = communicator.Wait(*second).status();
    EXPECT_EQ(status,
              absl::UnavailableError("rank 1 (stage 0, tp 1) closed its connection during all-reduce 3 of the tensor group"));
  });
}

TEST(FailureTest, AbortFromAnotherThreadWakesTheWaiterAndThePeers) {
  const absl::Status reason = absl::CancelledError("SIGTERM received");
  RunRanks(ParallelLayout{.tp = 3}, [&](int32_t rank, Communicator& communicator) {
    if (rank == 0) {
      std::vector<float> data(1'000'000);
      const TransferTicket ticket = *communicator.StartAllReduce(Group::kTensor, data.data(), 1'000'000);
      std::thread other([&] { communicator.Abort(reason); });
      EXPECT_EQ(communicator.Wait(ticket).status(), reason);
      other.join();
      ExpectSameEverywhere(communicator, reason);
      return;
    }
    const absl::Status status = communicator.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("rank 0 (stage 0, tp 0) gave up: SIGTERM received"));
    ExpectSameEverywhere(communicator, status);
  });
}

TEST(FailureTest, EndingInTheMiddleOfAnOperationTellsThePeers) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t rank, Communicator& communicator) {
    if (rank == 0) {
      // The buffer must live longer than the communicator.
      static std::vector<float> data(1'000'000);
      ASSERT_TRUE(communicator.StartAllReduce(Group::kTensor, data.data(), 1'000'000).ok());
      return;
    }
    const absl::Status status = communicator.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status),
                HasSubstr("rank 0 (stage 0, tp 0) ended its communication during all-reduce 0 of the tensor group"));
  });
}

TEST(FailureTest, ARankThatIsDoneMayLeaveWhileOthersGoOn) {
  std::atomic<bool> last_stage_is_done{false};
  RunRanks(ParallelLayout{.pp = 3}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(200'000, 5.0f), received(200'000);
    if (rank == 0) {
      const TransferTicket ticket = *communicator.StartSend(Group::kNextStage, data.data(), 200'000);
      ASSERT_TRUE(communicator.Wait(ticket).ok());
      return;
    }
    const Group neighbour = rank == 1 ? Group::kNextStage : Group::kPreviousStage;
    for (int i = 0; i < 50; ++i) {
      const TransferTicket out = *communicator.StartSend(neighbour, data.data(), 200'000);
      const absl::StatusOr<TransferTicket> in = communicator.StartRecv(neighbour, received.data(), 200'000);
      ASSERT_TRUE(in.ok()) << in.status();
      ASSERT_TRUE(communicator.Wait(out).ok());
      ASSERT_TRUE(communicator.Wait(*in).ok());
    }
    if (rank == 2) last_stage_is_done = true;
    if (rank == 1) {
      // Rank 1 waits until rank 2 is done. So the failure below concerns only rank 1.
      while (!last_stage_is_done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      // The data that the first stage sent before it left still arrives, but nothing more.
      received.assign(200'000, 0.0f);
      const TransferTicket last = *communicator.StartRecv(Group::kPreviousStage, received.data(), 200'000);
      ASSERT_TRUE(communicator.Wait(last).ok());
      EXPECT_EQ(received, data);
      const absl::StatusOr<TransferTicket> more = communicator.StartRecv(Group::kPreviousStage, received.data(), 1);
      const absl::Status status = communicator.Wait(*more).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 0 (stage 0, tp 0) closed its connection during receive 1 "
                                                   "from the previous stage"),
                                         HasSubstr("it had said that it is done")));
    }
  });
}

TEST(FailureTest, DifferentCountsAreAClearErrorOnEveryRank) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t rank, Communicator& communicator) {
    ASSERT_TRUE(AllReduceStatus(communicator, Group::kTensor, 7).ok());
    const absl::Status status = AllReduceStatus(communicator, Group::kTensor, rank == 0 ? 1000 : 1001);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("all-reduce 1 of the tensor group with 100"), HasSubstr("with 1000 elements"),
                                       HasSubstr("with 1001 elements"), HasSubstr("rank 0 (stage 0, tp 0)"),
                                       HasSubstr("rank 1 (stage 0, tp 1)"), HasSubstr("the ranks run different programs")));
  });
}

TEST(FailureTest, DifferentOperationsAreAClearErrorOnEveryRank) {
  RunRanks(ParallelLayout{.tp = 2}, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(2000);
    const absl::StatusOr<TransferTicket> ticket = rank == 0 ? communicator.StartAllReduce(Group::kTensor, data.data(), 1000)
                                                            : communicator.StartAllGather(Group::kTensor, data.data(), 1000);
    const absl::Status status = ticket.ok() ? communicator.Wait(*ticket).status() : ticket.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("all-reduce 0"), HasSubstr("all-gather 0")));
  });
}

TEST(FailureTest, APeerThatNeverStartsRunsIntoTheIdleTimeout) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  options[0].idle_timeout = Nanos(50'000'000);
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    if (rank == 0) {
      const absl::Status status = AllReduceStatus(communicator, Group::kTensor, 100);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 1 (stage 0, tp 1)"), HasSubstr("50.0 ms"),
                                         HasSubstr("all-reduce 0 of the tensor group")));
      ExpectSameEverywhere(communicator, status);
      return;
    }
    // The barrier belongs to another group. It never completes, because rank 0 does not take part.
    const absl::Status status = communicator.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("not a byte moved between rank 0"));
  });
}

// All ranks are stopped and continued. A process may be stopped while its communication thread is at any place in its loop.
TEST(FailureTest, RanksThatAreAllStoppedAndContinuedGoOn) {
  struct Shared {
    std::atomic<int64_t> rounds[2];
    std::atomic<bool> failed;
  };
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.tp = 2});
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    options[rank].idle_timeout = options[rank].silence_limit = Nanos(1'000'000'000);
    ranks.push_back(std::make_unique<RankProcess>(options[rank], [&, rank](Communicator& communicator) {
      while (AllReduceStatus(communicator, Group::kTensor, 64 << 10).ok()) ++shared->rounds[rank];
      shared->failed = true;
    }));
  }
  for (int stop = 0; stop < 8; ++stop) {
    const int64_t before = shared->rounds[0];
    while (shared->rounds[0] < before + 20 + stop && !shared->failed) usleep(100);
    for (const auto& rank : ranks) rank->Signal(SIGSTOP);
    usleep(1'500'000);
    for (const auto& rank : ranks) rank->Signal(SIGCONT);
  }
  const int64_t before = shared->rounds[1];
  while (shared->rounds[1] < before + 1000 && !shared->failed) usleep(100);
  EXPECT_FALSE(shared->failed);
  ranks.clear();
  munmap(shared, sizeof(Shared));
}

absl::Status AllToAllStatus(Communicator& communicator, int64_t members, int64_t count) {
  std::vector<float> send(static_cast<size_t>(members * count), 1.0f), receive(send.size());
  const absl::StatusOr<TransferTicket> ticket = communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), count);
  if (!ticket.ok()) return ticket.status();
  return communicator.Wait(*ticket).status();
}

// The victim has taken part in one all-to-all, and dies in the second. It is not the neighbour of every other member in the
// step in which they wait, but all of them name it and the operation.
TEST(FailureTest, AMemberThatIsKilledInAnAllToAllIsNamedByAll) {
  constexpr int64_t kCount = 500'000;
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.dp = 4, .ep = 4});
  const RankProcess victim(options[3], [](Communicator& communicator) { AllToAllStatus(communicator, 4, 100).IgnoreError(); });
  options.pop_back();
  std::atomic<int> waiting{0};
  RunRanks(options, [&](int32_t, Communicator& communicator) {
    ASSERT_TRUE(AllToAllStatus(communicator, 4, 100).ok());
    std::vector<float> send(4 * kCount, 1.0f), receive(4 * kCount);
    const int64_t before = communicator.BytesSent();
    const auto ticket = communicator.StartAllToAll(Group::kExpert, send.data(), receive.data(), kCount);
    ASSERT_TRUE(ticket.ok());
    while (communicator.BytesSent() == before) std::this_thread::yield();  // waits for bytes of the transfer
    if (++waiting == 3) victim.Kill();
    const absl::Status status = communicator.Wait(*ticket).status();
    EXPECT_EQ(status, absl::UnavailableError("rank 3 (stage 0, tp 0, dp 3, ep 3) closed its connection during all-to-all 1 of "
                                             "the expert group"));
    ExpectSameEverywhere(communicator, status);
  });
}

TEST(FailureTest, DifferentCountsOfAnAllToAllAreAClearErrorOnEveryRank) {
  RunRanks(ParallelLayout{.dp = 3, .ep = 3}, [&](int32_t rank, Communicator& communicator) {
    const absl::Status status = AllToAllStatus(communicator, 3, rank == 1 ? 1001 : 1000);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("all-to-all 0 of the expert group with 100"), HasSubstr("with 1000 elements"),
                                       HasSubstr("with 1001 elements"), HasSubstr("rank 1 (stage 0, tp 0, dp 1, ep 1)"),
                                       HasSubstr("the ranks run different programs")));
  });
}

TEST(FailureTest, AnotherOperationInsteadOfAnAllToAllIsAClearError) {
  RunRanks(ParallelLayout{.dp = 3, .ep = 3}, [&](int32_t rank, Communicator& communicator) {
    const absl::Status status =
        rank == 0 ? AllReduceStatus(communicator, Group::kExpert, 100) : AllToAllStatus(communicator, 3, 100);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("all-reduce 0"), HasSubstr("all-to-all 0")));
  });
}

TEST(FailureTest, AMemberThatNeverStartsAnAllToAllRunsIntoTheIdleTimeout) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(ParallelLayout{.dp = 2, .ep = 2});
  options[0].idle_timeout = Nanos(50'000'000);
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    const absl::Status status = rank == 0 ? AllToAllStatus(communicator, 2, 100) : communicator.Barrier();
    EXPECT_EQ(status.code(), rank == 0 ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("not a byte moved between rank 0"), HasSubstr("rank 1 (stage 0, tp 0, dp 1, ep 1)"),
                      HasSubstr("all-to-all 0 of the expert group")));
  });
}

}  // namespace
}  // namespace lynx::worker
