#include "worker/collectives/wire.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/rng.h"

namespace lynx::worker {
namespace {

Hello SomeHello() {
  Hello hello;
  hello.job = JobId("job-7");
  hello.generation = Generation(12);
  hello.layout = {.tp = 2,
                  .pp = 3,
                  .dp = 4,
                  .ep = 70'000,
                  .virtual_stages = 5,
                  .sequence_parallel = true,
                  .zero = ZeroStage::kGradients,
                  .schedule = ScheduleKind::kInterleaved,
                  .weave = WeaveMode::kQuads,
                  .rank_order = RankOrder::kTpDpPp};
  hello.experts = true;
  hello.encrypt = true;
  hello.from = 23;
  hello.to = 1;
  hello.channel = Channel::kStage;
  hello.part = 7;
  hello.nonce.fill('n');
  return hello;
}

TEST(WireTest, HelloComesBack) {
  const std::string bytes = EncodeHello(SomeHello());
  ASSERT_EQ(bytes.size(), kHelloBytes);
  const std::optional<Hello> hello = DecodeHello(bytes);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->job, JobId("job-7"));
  EXPECT_EQ(hello->generation, Generation(12));
  EXPECT_EQ(hello->layout, SomeHello().layout);
  EXPECT_TRUE(hello->experts);
  EXPECT_TRUE(hello->encrypt);
  EXPECT_EQ(hello->from, 23);
  EXPECT_EQ(hello->to, 1);
  EXPECT_EQ(hello->channel, Channel::kStage);
  EXPECT_EQ(hello->part, 7);
  EXPECT_EQ(hello->nonce, SomeHello().nonce);
}

TEST(WireTest, ALongestJobIdFits) {
  Hello hello = SomeHello();
  hello.job = JobId(std::string(kMaxJobIdBytes, 'x'));
  EXPECT_EQ(DecodeHello(EncodeHello(hello))->job, hello.job);
}

TEST(WireTest, OtherMarksAndChannelsAreNotAHello) {
  std::string bytes = EncodeHello(SomeHello());
  EXPECT_TRUE(MayBeHello(bytes.substr(0, 2)));
  EXPECT_TRUE(MayBeHello(""));
  EXPECT_FALSE(MayBeHello("GET / HTTP/1.1"));
  // Fields of the Hello: channel, schedule, ZeRO, sequence parallelism, weave, order of ranks, experts, encryption.
  for (const size_t at : {48, 49, 50, 51, 60, 61, 68, 69}) {
    std::string bad = bytes;
    bad[at] = 77;
    EXPECT_FALSE(DecodeHello(bad).has_value()) << at;
  }
  bytes[61] = 0;
  EXPECT_FALSE(DecodeHello(bytes).has_value()) << "the order of ranks is never auto";
  bytes[0] = 'G';
  EXPECT_FALSE(MayBeHello(bytes));
  EXPECT_FALSE(DecodeHello(bytes).has_value());
}

TEST(WireTest, RepliesComeBackAndAreBounded) {
  const std::string accepted = EncodeHelloReply("");
  EXPECT_EQ(DecodeHelloReplyHead(accepted), 0u);
  const std::string refused = EncodeHelloReply("no");
  EXPECT_EQ(DecodeHelloReplyHead(refused.substr(0, kHelloReplyHeadBytes)), 2u);
  EXPECT_EQ(refused.substr(kHelloReplyHeadBytes), "no");
  const std::string longest = EncodeHelloReply(std::string(5000, 'x'));
  EXPECT_EQ(DecodeHelloReplyHead(longest.substr(0, kHelloReplyHeadBytes)), kMaxWireTextBytes);
  EXPECT_EQ(longest.size(), kHelloReplyHeadBytes + kMaxWireTextBytes);
  std::string huge = accepted;
  huge[7] = 0x7f;
  EXPECT_FALSE(DecodeHelloReplyHead(huge).has_value());
}

TEST(WireTest, OperationHeadersComeBack) {
  OperationHeader header{OperationKind::kAllGather, 17, int64_t{1} << 40};
  EXPECT_EQ(DecodeOperationHeader(EncodeOperationHeader(header)), header);
  header.kind = OperationKind::kAllToAll;
  header.type = DataType::kBfloat16;
  EXPECT_EQ(DecodeOperationHeader(EncodeOperationHeader(header)), header);
  OperationHeaderBytes bytes = EncodeOperationHeader(header);
  bytes[4] = 9;
  EXPECT_FALSE(DecodeOperationHeader(bytes).has_value());
  bytes = EncodeOperationHeader(header);
  bytes[5] = 2;  // no data type has this number
  EXPECT_FALSE(DecodeOperationHeader(bytes).has_value());
}

TEST(WireTest, NoticesComeBack) {
  const std::string leaves = EncodeNotice({.kind = NoticeKind::kLeaves});
  ASSERT_TRUE(DecodeNotice(leaves).has_value());
  EXPECT_EQ(DecodeNotice(leaves)->kind, NoticeKind::kLeaves);
  const absl::Status reason = absl::UnavailableError("rank 3 is gone");
  const std::string failed = EncodeNotice({NoticeKind::kGivesUp, reason});
  ASSERT_TRUE(DecodeNotice(failed).has_value());
  EXPECT_EQ(DecodeNotice(failed)->kind, NoticeKind::kGivesUp);
  EXPECT_EQ(DecodeNotice(failed)->reason, reason);
  EXPECT_FALSE(DecodeNotice(failed.substr(0, failed.size() - 1)).has_value());
  const ProgressSign progress{.made = int64_t{1} << 40, .quiet = Nanos(5'000'000'000), .waits = true};
  std::string lives = EncodeNotice({.kind = NoticeKind::kLives, .progress = progress});
  ASSERT_TRUE(DecodeNotice(lives).has_value());
  EXPECT_EQ(DecodeNotice(lives)->kind, NoticeKind::kLives);
  EXPECT_EQ(DecodeNotice(lives)->progress, progress);
  EXPECT_FALSE(DecodeNotice(EncodeNotice({.kind = NoticeKind::kLives, .progress = {.quiet = Nanos(-1)}})).has_value());
  EXPECT_FALSE(DecodeNotice(EncodeNotice({.kind = NoticeKind::kLives, .progress = {.quiet = Nanos(INT64_MAX)}})).has_value());
  lives[2] = 3;  // no kind of notice has this number
  EXPECT_FALSE(DecodeNotice(lives).has_value());
}

TEST(WireTest, RandomBytesAreNeverMisread) {
  constexpr uint64_t kSeed = 20261121;
  RecordProperty("seed", std::to_string(kSeed));
  for (uint64_t round = 0; round < 2000; ++round) {
    std::string bytes(kHelloBytes, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(Mix64(kSeed + round * 1000 + i));
    EXPECT_FALSE(DecodeHello(bytes).has_value());
    EXPECT_FALSE(DecodeHelloReplyHead(bytes.substr(0, kHelloReplyHeadBytes)).has_value());
    OperationHeaderBytes header;
    std::copy_n(bytes.begin(), header.size(), header.begin());
    EXPECT_FALSE(DecodeOperationHeader(header).has_value());
  }
}

}  // namespace
}  // namespace lynx::worker
