// Tests the check of nodes, by ranks that are threads. Good nodes must pass, and the ranks with a problem must report it.
#include "worker/rank/check/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "common/status.h"
#include "tests/worker/collectives/rank_threads.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/rank/peers/with_cause.h"

namespace lynx::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const ParallelLayout kFour{.tp = 2, .pp = 2, .dp = 1};
constexpr Nanos kLong{600'000'000'000};

class WrongBackend : public cpu::CpuBackend {
 public:
  void LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out, float* y) override {
    CpuBackend::LinearForward(x, w, bias, n, in, out, y);
    y[5] += 1;
  }
};

// The communicator of a pair with a fault: it receives wrong data, or its exchanges take longer.
class BadPair : public Communicator {
 public:
  struct Fault {
    bool corrupts = false;
    Nanos delay;  // the delay of every exchange
  };
  BadPair(std::unique_ptr<Communicator> inner, Fault fault, int32_t rank)
      : inner_(std::move(inner)), fault_(fault), rank_(rank) {}

  absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) override {
    count_ = count;
    theirs_ = static_cast<char*>(data.data) + (1 - rank_) * count * ElementBytes(data.type);
    return inner_->StartAllGather(route, data, count);
  }
  absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override {
    absl::StatusOr<TransferTimes> times = inner_->Wait(ticket);
    if (times.ok() && fault_.corrupts && count_ > 777) theirs_[4 * 777] ^= 1;
    if (times.ok()) times->completed = times->completed.time + fault_.delay;
    return times;
  }
  absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) override {
    return inner_->StartAllReduce(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) override {
    return inner_->StartReduceScatter(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                               int64_t count) override {
    return inner_->StartAllToAll(route, send, receive, count);
  }
  absl::StatusOr<TransferTicket> StartSend(const Route& route, ConstElements data, int64_t count) override {
    return inner_->StartSend(route, data, count);
  }
  absl::StatusOr<TransferTicket> StartRecv(const Route& route, Elements data, int64_t count) override {
    return inner_->StartRecv(route, data, count);
  }
  absl::Status Barrier() override { return inner_->Barrier(); }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }
  absl::Status Failure() const override { return inner_->Failure(); }
  void SetIdleTimeout(Nanos idle_timeout) override { inner_->SetIdleTimeout(idle_timeout); }
  int64_t BytesSent() const override { return inner_->BytesSent(); }
  Nanos ThreadCpuTime() const override { return inner_->ThreadCpuTime(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const Fault fault_;
  const int32_t rank_;
  char* theirs_ = nullptr;
  int64_t count_ = 0;
};

struct Outcome {
  absl::StatusOr<NodeCheckReport> result = absl::UnknownError("it did not run");
  FaultCause cause = FaultCause::kUnknown;
  std::vector<int32_t> peers;
};

// Runs the check and returns the results of the ranks. `bad`: a rank whose device computes wrong results. `ended`: is called
// when a rank is done, before its peers hear of it.
std::vector<Outcome> Check(
    const ParallelLayout& layout, const std::function<NodeCheckOptions(int32_t rank, const RankConfig&)>& options_of,
    int32_t bad = -1, const std::function<void()>& ended = [] {}) {
  const std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
  std::vector<Outcome> outcomes(static_cast<size_t>(layout.ranks()));
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    RankConfig config;
    config.job = options[static_cast<size_t>(rank)].job;
    config.generation = options[static_cast<size_t>(rank)].generation;
    config.rank = rank;
    config.context.layout = layout;
    config.peers = options[static_cast<size_t>(rank)].peers;
    config.connection_secret = options[static_cast<size_t>(rank)].secret;
    cpu::CpuBackend whole;
    WrongBackend wrong;
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    outcome.result =
        CheckNodes(config, options_of(rank, config), rank == bad ? static_cast<Backend&>(wrong) : whole, communicator);
    outcome.cause = CauseOf(outcome.result.status());
    outcome.peers = LinkPeersOf(outcome.result.status());
    ended();
    if (!outcome.result.ok()) communicator.Abort(outcome.result.status());
  });
  return outcomes;
}

NodeCheckOptions Patient(int32_t, const RankConfig&) { return {.patience = kLong}; }

// Returns the options of a rank. When the rank is paired with rank `peer`, its communicator has the fault.
NodeCheckOptions WithFault(const RankConfig& config, int32_t peer, BadPair::Fault fault) {
  NodeCheckOptions options{.patience = kLong};
  options.connect = [&config, peer, fault](const CommunicatorOptions& pair) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    const bool is_it = pair.peers[pair.rank == 0 ? 1 : 0] == config.peers[static_cast<size_t>(peer)];
    absl::StatusOr<std::unique_ptr<Communicator>> connected = ConnectTcp(pair);
    if (!connected.ok() || !is_it) return connected;
    return std::make_unique<BadPair>(*std::move(connected), fault, pair.rank);
  };
  return options;
}

TEST(NodeCheck, WhatIsWholePassesAndIsCounted) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 1, .pp = 1, .dp = 1}, ParallelLayout{.tp = 2, .pp = 1, .dp = 1},
                                       kFour, ParallelLayout{.tp = 1, .pp = 3, .dp = 2}}) {
    for (const Outcome& outcome : Check(layout, Patient)) {
      ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
      EXPECT_EQ(outcome.result->devices, layout.ranks());
      EXPECT_GT(outcome.result->duration, Nanos(0));
      EXPECT_EQ(outcome.result->links > 0, layout.ranks() > 1);
      EXPECT_EQ(outcome.result->slowest_bytes_per_second > 0, layout.ranks() > 1);
    }
  }
  EXPECT_EQ(Check(kFour, Patient).front().result->links, 6);
}

TEST(NodeCheck, ADeviceThatComputesWronglyIsToldByItsRankAlone) {
  const std::vector<Outcome> outcomes = Check(kFour, Patient, /*bad=*/2);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    ASSERT_FALSE(outcome.result.ok());
    const std::string text(outcome.result.status().message());
    EXPECT_EQ(outcome.cause, rank == 2 ? FaultCause::kCheck : FaultCause::kUnknown);
    EXPECT_EQ(IsPeerLoss(outcome.result.status()), rank != 2) << text;
    EXPECT_THAT(text, HasSubstr("node check: the device computes wrongly: element (0, 5)"));
    if (rank == 2) continue;
    EXPECT_THAT(text, HasSubstr("rank 2 has failed its node check"));
  }
}

TEST(NodeCheck, WordsThatArriveWrongAreToldByTheRankThatReadThem) {
  const std::vector<Outcome> outcomes = Check(kFour, [](int32_t rank, const RankConfig& config) {
    return rank == 0 ? WithFault(config, 3, {.corrupts = true}) : Patient(rank, config);
  });
  EXPECT_EQ(outcomes[0].cause, FaultCause::kLink) << outcomes[0].result.status();
  EXPECT_THAT(outcomes[0].peers, ElementsAre(3));
  EXPECT_THAT(std::string(outcomes[0].result.status().message()),
              HasSubstr("node check: what rank 3 at 127.0.0.1 sends arrives wrong: word 777 of 262144 is 0x"));
  for (const int32_t rank : {1, 2, 3}) {
    EXPECT_TRUE(IsPeerLoss(outcomes[static_cast<size_t>(rank)].result.status()))
        << outcomes[static_cast<size_t>(rank)].result.status();
  }
}

TEST(NodeCheck, ASlowLinkIsToldByBothItsEnds) {
  const std::vector<Outcome> outcomes = Check(kFour, [](int32_t rank, const RankConfig& config) {
    return rank == 1 ? WithFault(config, 3, {.delay = Nanos(900'000'000'000)}) : Patient(rank, config);
  });
  for (const int32_t rank : {1, 3}) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_EQ(outcome.cause, FaultCause::kLink) << outcome.result.status();
    EXPECT_THAT(outcome.peers, ElementsAre(4 - rank));
    EXPECT_THAT(std::string(outcome.result.status().message()), HasSubstr("moves 1.1 KiB/s, where others like it move"));
  }
  for (const int32_t rank : {0, 2}) {
    EXPECT_THAT(std::string(outcomes[static_cast<size_t>(rank)].result.status().message()),
                HasSubstr("rank 1 has failed its node check: the link to rank 3 is bad"));
  }
}

// The link is slow only once, as if the machine had stopped the rank at one end for a moment.
TEST(NodeCheck, ALinkThatIsSlowOnceIsTriedAgain) {
  std::atomic<int> waits = 0;
  class SlowOnce : public BadPair {
   public:
    SlowOnce(std::unique_ptr<Communicator> inner, int32_t rank, std::atomic<int>& waits)
        : BadPair(std::move(inner), {}, rank), waits_(waits) {}
    absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) override {
      absl::StatusOr<TransferTimes> times = BadPair::Wait(ticket);
      if (times.ok() && ++waits_ <= 6) times->completed = times->completed.time + Nanos(800'000'000);
      return times;
    }

   private:
    std::atomic<int>& waits_;
  };
  const std::vector<Outcome> outcomes = Check(kFour, [&](int32_t rank, const RankConfig& config) {
    NodeCheckOptions options = Patient(rank, config);
    if (rank != 1) return options;
    options.connect = [&](const CommunicatorOptions& pair) -> absl::StatusOr<std::unique_ptr<Communicator>> {
      absl::StatusOr<std::unique_ptr<Communicator>> connected = ConnectTcp(pair);
      if (!connected.ok() || pair.peers[1] != config.peers[3]) return connected;
      return std::make_unique<SlowOnce>(*std::move(connected), pair.rank, waits);
    };
    return options;
  });
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.result.ok()) << outcome.result.status();
  EXPECT_GE(waits, 7);
}

// Rank 3 does not connect to the partners that the check gives it. A rank that has waited for rank 3 must report it.
TEST(NodeCheck, ARankThatDoesNotAnswerIsToldOfByOneThatWaited) {
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;
  const std::vector<Outcome> outcomes = Check(
      kFour,
      [&](int32_t rank, const RankConfig&) {
        NodeCheckOptions options{.patience = Nanos(5'000'000'000)};
        options.connect = [&, rank](const CommunicatorOptions& pair) -> absl::StatusOr<std::unique_ptr<Communicator>> {
          if (rank == 3) {
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return done > 0; });
            return absl::UnavailableError("the test is over");
          }
          return ConnectTcp(pair);
        };
        return options;
      },
      /*bad=*/-1,
      [&] {
        const std::lock_guard lock(mutex);
        ++done;
        changed.notify_all();
      });
  int accusers = 0;
  for (const int32_t rank : {0, 1, 2}) {
    const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    ASSERT_FALSE(outcome.result.ok());
    if (outcome.cause != FaultCause::kLink) {
      EXPECT_TRUE(IsPeerLoss(outcome.result.status())) << outcome.result.status();
      continue;
    }
    ++accusers;
    EXPECT_THAT(outcome.peers, ElementsAre(3)) << outcome.result.status();
    EXPECT_THAT(std::string(outcome.result.status().message()), HasSubstr("node check: rank 3 at 127.0.0.1 does not answer"));
  }
  EXPECT_GE(accusers, 1);
}

// Rank 1 ends as soon as it has connected. Rank 0 must report a lost peer, not a bad link.
TEST(NodeCheck, APeerThatEndsIsAPeerThatEnds) {
  const std::vector<Outcome> outcomes = Check({.tp = 2, .pp = 1, .dp = 1}, [](int32_t rank, const RankConfig&) {
    NodeCheckOptions options{.patience = kLong};
    if (rank == 1)
      options.connect = [](const CommunicatorOptions& pair) -> absl::StatusOr<std::unique_ptr<Communicator>> {
        LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> connected, ConnectTcp(pair));
        return absl::CancelledError("it ends");  // its connections end too
      };
    return options;
  });
  EXPECT_TRUE(IsPeerLoss(outcomes[0].result.status())) << outcomes[0].result.status();
  EXPECT_EQ(outcomes[0].cause, FaultCause::kUnknown);
}

}  // namespace
}  // namespace lynx::worker
