// Tests that encrypted connections between ranks show nothing to a person on the network, let nobody change anything, and give
// the same results as plain ones. The same checks on plain connections show that the tests can find such text and changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/worker/collectives/rank_threads.h"
#include "tests/worker/collectives/wire_tap.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kCount = 300'000;
constexpr std::string_view kPlain = "a plain text that is known";

std::vector<CommunicatorOptions> PairOptions(const ParallelLayout& layout, bool encrypt) {
  std::vector<CommunicatorOptions> options = LoopbackOptions(layout);
  for (CommunicatorOptions& of_rank : options) {
    of_rank.encrypt = encrypt;
    of_rank.idle_timeout = Nanos(20'000'000'000);
  }
  return options;
}

// Runs a gather of data with the known text between two ranks, with a tap between them. Returns the bytes that passed the tap.
std::string SeenOnTheWire(bool encrypt) {
  std::vector<CommunicatorOptions> options = PairOptions({.tp = 2}, encrypt);
  WireTap tap(options[0].peers[0]);
  options[1].peers[0] = tap.address();
  RunRanks(options, [](int32_t rank, Communicator& communicator) {
    std::vector<float> data(2 * kCount);
    char* const own = reinterpret_cast<char*>(data.data() + rank * kCount);
    for (size_t at = 0; at + kPlain.size() <= kCount * sizeof(float); at += 1000) {
      std::memcpy(own + at, kPlain.data(), kPlain.size());
    }
    const std::vector<float> before = data;
    const TransferTicket ticket = *communicator.StartAllGather(Group::kTensor, data.data(), kCount);
    ASSERT_TRUE(communicator.Wait(ticket).ok());
    EXPECT_EQ(std::memcmp(data.data(), data.data() + kCount, kCount * sizeof(float)), 0);
    EXPECT_TRUE(communicator.Barrier().ok());
  });
  return tap.Seen();
}

TEST(Encryption, TheWireShowsNothingOfTheData) {
  const auto has = [](const std::string& seen, std::string_view text) { return seen.find(text) != std::string::npos; };
  const std::string plain = SeenOnTheWire(false), encrypted = SeenOnTheWire(true);
  EXPECT_GT(plain.size(), size_t{2} * kCount * sizeof(float));
  EXPECT_GT(encrypted.size(), plain.size());
  EXPECT_TRUE(has(plain, kPlain));
  EXPECT_FALSE(has(encrypted, kPlain));
  // The header of an operation must not be visible in plain text either.
  const OperationHeaderBytes header = EncodeOperationHeader({OperationKind::kAllGather, 0, kCount});
  EXPECT_TRUE(has(plain, {header.data(), header.size()}));
  EXPECT_FALSE(has(encrypted, {header.data(), 4}));
}

// Flips one bit of the data between the ranks. Returns the errors of the two ranks, one after the other; "" if a rank has no
// error.
std::string AfterAFlippedBit(bool encrypt) {
  std::vector<CommunicatorOptions> options = PairOptions({.tp = 2}, encrypt);
  constexpr int64_t kWhere = 500'000;
  WireTap tap(options[0].peers[0], [](int64_t at, std::string& bytes) {
    if (at > kWhere || at + static_cast<int64_t>(bytes.size()) <= kWhere) return;
    char& changed = bytes[static_cast<size_t>(kWhere - at)];
    changed = static_cast<char>(changed ^ 1);
  });
  options[1].peers[0] = tap.address();
  std::string said[2];
  RunRanks(options, [&](int32_t rank, Communicator& communicator) {
    std::vector<float> data(2 * kCount, 1.0f);
    const auto ticket = communicator.StartAllGather(Group::kTensor, data.data(), kCount);
    absl::Status status = ticket.ok() ? communicator.Wait(*ticket).status() : ticket.status();
    if (status.ok()) status = communicator.Barrier();
    if (!status.ok()) said[rank] = std::string(status.message());
  });
  return said[0] + "\n" + said[1];
}

TEST(Encryption, AFlippedBitEndsBothRanksWithTheNamesOfBoth) {
  EXPECT_EQ(AfterAFlippedBit(false), "\n");  // without encryption nobody notices
  const std::string said = AfterAFlippedBit(true);
  const std::string expected =
      "bytes from rank 1 (stage 0, tp 1) were changed, left out, repeated or moved on their way to rank 0 (stage 0, tp 0) "
      "during "
      "all-gather 0 of the tensor group: a frame of their encrypted connection (tensor) is not authentic";
  EXPECT_EQ(said, expected + "\n" + expected);
}

TEST(Encryption, ResultsHaveTheSameBits) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 3}, ParallelLayout{.pp = 2, .dp = 2}}) {
    std::vector<std::vector<float>> results[2];
    for (const bool encrypt : {false, true}) {
      results[encrypt].resize(static_cast<size_t>(layout.ranks()));
      RunRanks(PairOptions(layout, encrypt), [&](int32_t rank, Communicator& communicator) {
        std::vector<float>& data = results[encrypt][static_cast<size_t>(rank)];
        for (int64_t i = 0; i < kCount + 7; ++i) data.push_back(1.0f / static_cast<float>(i + 13 * rank + 1));
        for (const Group group : {Group::kTensor, Group::kData, Group::kWorld}) {
          const TransferTicket ticket = *communicator.StartAllReduce(group, data.data(), kCount + 7);
          ASSERT_TRUE(communicator.Wait(ticket).ok());
        }
        // Each lane has several small transfers under way.
        std::vector<float> small(64, static_cast<float>(rank));
        std::vector<TransferTicket> tickets;
        for (int i = 0; i < 64; ++i)
          tickets.push_back(*communicator.StartAllReduce(Group::kWorld, &small[static_cast<size_t>(i)], 1));
        for (const TransferTicket ticket : tickets) ASSERT_TRUE(communicator.Wait(ticket).ok());
        data.insert(data.end(), small.begin(), small.end());
      });
    }
    EXPECT_TRUE(results[0] == results[1]);
  }
}

// A rank that does not encrypt must not train with one that does, whichever of them opens the connection.
TEST(Encryption, RanksThatDoNotAgreeRefuseEachOther) {
  for (const int32_t encrypts : {0, 1}) {
    std::vector<CommunicatorOptions> options = LoopbackOptions({.tp = 2});
    options[static_cast<size_t>(encrypts)].encrypt = true;
    std::string said[2];
    OnThreads(2, [&](int32_t rank) {
      options[rank].connect_timeout = Nanos(1'500'000'000);
      const absl::Status status = ConnectTcp(options[rank]).status();
      ASSERT_FALSE(status.ok());
      said[rank] = std::string(status.message());
    });
    const std::string refusal = encrypts == 1
                                    ? "an encrypted connection was offered, ranks use a connection that is not encrypted"
                                    : "a connection that is not encrypted was offered, ranks use an encrypted connection";
    EXPECT_THAT(said[0], HasSubstr(refusal));
    EXPECT_THAT(said[1], encrypts == 1 ? HasSubstr("answered without the encryption") : HasSubstr(refusal));
  }
}

// An attacker between the ranks can change the Hello, because it is not encrypted. But the proofs depend on the whole Hello.
TEST(Encryption, NobodyOnTheWayCanSwitchItOff) {
  std::vector<CommunicatorOptions> options = PairOptions({.tp = 2}, true);
  constexpr int64_t kEncryptAt = 69;  // the field of the Hello
  WireTap tap(options[0].peers[0], [](int64_t at, std::string& bytes) {
    if (at <= kEncryptAt && at + static_cast<int64_t>(bytes.size()) > kEncryptAt)
      bytes[static_cast<size_t>(kEncryptAt - at)] = 0;
  });
  options[1].peers[0] = tap.address();
  OnThreads(2, [&](int32_t rank) {
    options[rank].connect_timeout = Nanos(1'500'000'000);
    const absl::Status status = ConnectTcp(options[rank]).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  });
}

}  // namespace
}  // namespace lynx::worker
