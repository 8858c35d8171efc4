// Tests what ranks tell each other before and during training, over loopback.
#include "worker/rank/peers/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/collectives/rank_threads.h"
#include "worker/rank/peers/device_transport.h"
#include "worker/rank/peers/idle_limit.h"
#include "worker/rank/peers/same_data.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const ParallelLayout kFour{2, 1, 2};

DataFingerprint SomeData() { return {DataKind::kText, Bytes(1000), std::string(64, 'a')}; }

TEST(Agreement, EveryRankHearsEveryStatus) {
  RunRanks(kFour, [](int32_t rank, Communicator& communicator) {
    const absl::Status own = rank == 2 ? absl::DataLossError(std::string(600, 'x')) : absl::OkStatus();
    const auto statuses = GatherStatuses(own, {rank, 4, communicator});
    ASSERT_TRUE(statuses.ok()) << statuses.status();
    const absl::Status cut = absl::DataLossError(std::string(kAgreementMessageBytes, 'x'));
    EXPECT_EQ(*statuses, (std::vector<absl::Status>{absl::OkStatus(), absl::OkStatus(), cut, absl::OkStatus()}));
    EXPECT_EQ(FirstFailure(*statuses), absl::DataLossError("rank 2: " + std::string(cut.message())));
  });
}

TEST(Agreement, ValuesArriveBitForBit) {
  RunRanks(kFour, [](int32_t rank, Communicator& communicator) {
    // As a float, 0x7f800001 is a signalling NaN. A copy as a float could change its bits.
    const uint64_t own = 0x7f800001'00000000u + static_cast<uint64_t>(rank);
    const auto values = GatherValues(own, {rank, 4, communicator});
    ASSERT_TRUE(values.ok()) << values.status();
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ((*values)[i], 0x7f800001'00000000u + i);
  });
}

TEST(Agreement, TextsOfAnyLengthArrive) {
  RunRanks(kFour, [](int32_t rank, Communicator& communicator) {
    const std::vector<std::string> sent = {"", std::string(100'001, 'x'), std::string("a\0b", 3), "yz"};
    const auto texts = GatherTexts(sent[static_cast<size_t>(rank)], {rank, 4, communicator});
    ASSERT_TRUE(texts.ok()) << texts.status();
    EXPECT_TRUE(*texts == sent);
    const auto none = GatherTexts("", {rank, 4, communicator});
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ(*none, std::vector<std::string>(4));
  });
}

TEST(AgreeOnNccl, AllHaveItOrNoneHas) {
  for (const std::string& nccl : {std::string("NCCL 2.28.3"), std::string()}) {
    RunRanks(kFour, [&](int32_t rank, Communicator& communicator) {
      const absl::StatusOr<bool> agreed =
          AgreeOnNccl(nccl, "node-" + std::to_string(rank), RankEncryption::kOff, {rank, 4, communicator});
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_EQ(*agreed, !nccl.empty());
    });
  }
}

TEST(AgreeOnNccl, NodesThatAreUnlikeAreNamedOnEveryRank) {
  for (const std::string& other : {std::string(), std::string("NCCL 2.19.0")}) {
    RunRanks(kFour, [&](int32_t rank, Communicator& communicator) {
      const absl::Status status = AgreeOnNccl(rank == 2 ? other : "NCCL 2.28.3", "node-" + std::to_string(rank),
                                              RankEncryption::kOff, {rank, 4, communicator})
                                      .status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("rank 0 on node-0 has NCCL 2.28.3, but rank 2 on node-2 has " +
                                  (other.empty() ? "no NCCL" : other) + "; install the same build of Lynx"),
                        HasSubstr("--devices cpu")));
    });
  }
}

TEST(AgreeOnNccl, RanksThatMustEncryptDoNotUseIt) {
  for (const RankEncryption encryption : {RankEncryption::kOn, RankEncryption::kExceptNccl}) {
    for (const std::string& nccl : {std::string("NCCL 2.28.3"), std::string()}) {
      RunRanks(kFour, [&](int32_t rank, Communicator& communicator) {
        const absl::StatusOr<bool> agreed = AgreeOnNccl(nccl, "node", encryption, {rank, 4, communicator});
        if (encryption == RankEncryption::kExceptNccl || nccl.empty()) {
          ASSERT_TRUE(agreed.ok()) << agreed.status();
          EXPECT_EQ(*agreed, !nccl.empty());
          return;
        }
        EXPECT_TRUE(absl::IsFailedPrecondition(agreed.status())) << agreed.status();
        EXPECT_THAT(std::string(agreed.status().message()),
                    AllOf(HasSubstr("and NCCL 2.28.3, which the GPUs of the job would use, cannot"), HasSubstr("except-nccl")));
      });
    }
  }
}

TEST(AgreeOnNccl, LongNamesAreCut) {
  RunRanks(kFour, [&](int32_t rank, Communicator& communicator) {
    const absl::Status status =
        AgreeOnNccl(rank == 3 ? "" : "NCCL 2.28.3", std::string(200, 'n'), RankEncryption::kOff, {rank, 4, communicator})
            .status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("on " + std::string(63, 'n') + " has no NCCL"));
  });
}

TEST(Introduction, AddsUpTheCheckpoint) {
  RunRanks(kFour, [](int32_t rank, Communicator& communicator) {
    const auto bytes = CheckSameData(SomeData(), Bytes(rank < 2 ? int64_t{1} << (40 + rank) : 0), {rank, 4, communicator});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(*bytes, Bytes(int64_t{3} << 40));
  });
}

TEST(Introduction, RanksOnDifferentDataAllRefuse) {
  for (int kind = 0; kind < 3; ++kind) {
    RunRanks(kFour, [&](int32_t rank, Communicator& communicator) {
      DataFingerprint data = SomeData();
      if (rank == 3 && kind == 0) data.bytes = Bytes(1001);
      if (rank == 3 && kind == 1) data.sha256[63] = 'b';
      if (rank == 3 && kind == 2) data.kind = DataKind::kMegatron;
      const absl::Status status = CheckSameData(data, Bytes(1), {rank, 4, communicator}).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("rank 0 has text of 1000 bytes"), HasSubstr("rank 3 has"), HasSubstr("data.path")));
    });
  }
}

TEST(IdleLimit, GrowsWithTheCheckpoint) {
  EXPECT_EQ(CheckpointIdleLimit(Bytes(0)), kIdleLimit);
  EXPECT_EQ(CheckpointIdleLimit(kGiB), kIdleLimit + Nanos(32'000'000'000));
  // A checkpoint with 12 bytes for each of 10^12 parameters gives a limit of four days, without overflow.
  EXPECT_EQ(CheckpointIdleLimit(Bytes(12'000'000'000'000)).value / 1'000'000'000, 600 + 357'627);
}

// Rank 1 is silent for ten times the idle limit while a checkpoint is being written. This must not be an error.
TEST(IdleLimit, IsLongerWhileACheckpointIsUnderWay) {
  std::vector<CommunicatorOptions> options = LoopbackOptions({2, 1, 1});
  for (CommunicatorOptions& one : options) one.idle_timeout = Nanos(20'000'000);
  RunRanks(options, [](int32_t rank, Communicator& communicator) {
    {
      const IdleLimit limit(communicator, Nanos(0));
      const CheckpointPatience patience(limit, kGiB);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(communicator.Barrier(), absl::OkStatus());
    }
    EXPECT_EQ(communicator.Barrier(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace lynx::worker
