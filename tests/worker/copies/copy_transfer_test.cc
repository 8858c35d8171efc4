// Tests sending copies from rank to rank: a server and its clients, and what they do with unexpected messages.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "common/digest.h"
#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/shard.h"
#include "worker/collectives/peer_proof.h"
#include "worker/contract/rank_progress.h"
#include "worker/copies/copy_client.h"
#include "worker/copies/copy_files.h"
#include "worker/copies/copy_server.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const ParallelLayout kLayout{.tp = 2, .pp = 2, .dp = 1};

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

// Node 0 sends copies, and node 1 receives them.
class CopyTransferTest : public testing::Test {
 protected:
  CopyTransferTest()
      : world_(kLayout), here_(folder_.Path("here"), JobId("job-1")), there_(folder_.Path("there"), JobId("job-1")) {
    EXPECT_TRUE(here_.Create().ok() && there_.Create().ok());
    auto server = CopyServer::Listen({.host = "127.0.0.1",
                                      .run = world_.Identity(0),
                                      .secret = ends_.secret,
                                      .most_connections = 8,
                                      .tell =
                                          [this](const std::string& line) {
                                            const std::lock_guard lock(mutex_);
                                            told_ += line + "\n";
                                          }},
                                     there_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Serve(ShardFiles(kLayout));
  }
  PeerAddress address() const { return {"127.0.0.1", server_->port()}; }

  // Writes a file with this content, and its record, on node 0.
  CopyRecord WriteHere(int64_t step, const std::string& file, const std::string& content) {
    CopyRecord record{world_.Identity(step), {file, Bytes(static_cast<int64_t>(content.size())), Sha256Hex(content)}};
    const auto fd = here_.BeginShard(record.key(), std::nullopt);
    EXPECT_TRUE(fd.ok() && WriteAll(fd->get(), content, "it").ok() && here_.Complete(record).ok());
    return record;
  }
  absl::Status Send(CopyClient& client, const CopyRecord& record, int64_t replaced = -1) {
    const auto fd = here_.OpenShard(record.key());
    EXPECT_TRUE(fd.ok());
    return client.Put(record.key(), replaced, fd->get(), record.shard);
  }

  const TestFolder folder_;
  CheckpointWorld world_;
  const CopyStore here_, there_;
  // The ends of a connection on which rank 2 sends requests to rank 0.
  const CopyEnds ends_{.secret = NewConnectionSecret(), .generation = Generation(1), .from = 2, .to = 0};
  std::mutex mutex_;
  std::string told_;  // guarded by mutex_
  std::unique_ptr<CopyServer> server_;
  const std::string file_ = ShardFile(kLayout, 0, 0, 0);
};

TEST_F(CopyTransferTest, AShardArrivesAndIsReadBack) {
  const std::string content = Pattern(5'000'000);
  const CopyRecord record = WriteHere(3, file_, content);
  CopyClient client(address(), ends_, 0);
  ASSERT_TRUE(Send(client, record).ok());
  ASSERT_EQ(there_.List().copies.size(), 1u);
  EXPECT_TRUE(there_.Verify(record).ok());
  std::string part(4'500'000, '\0');
  ASSERT_TRUE(client.Get(record.key(), 123'456, part).ok());
  EXPECT_TRUE(part == content.substr(123'456, part.size()));
  EXPECT_EQ(client.Get(record.key(), 4'999'999, part).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(client.Get({Generation(1), 4, file_}, 0, part).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(client.Get(record.key(), 0, part).ok());  // the connection still works
}

TEST_F(CopyTransferTest, TheNextStepTakesThePlaceOfAnOlderOne) {
  CopyClient client(address(), ends_, 0);
  ASSERT_TRUE(Send(client, WriteHere(3, file_, "three")).ok());
  ASSERT_TRUE(Send(client, WriteHere(4, file_, "four")).ok());
  ASSERT_TRUE(Send(client, WriteHere(5, file_, "5"), 3).ok());
  const NodeCopies listed = there_.List();
  ASSERT_EQ(listed.copies.size(), 2u);
  EXPECT_EQ(listed.copies[0].identity.step, 4);
  EXPECT_EQ(listed.copies[1].identity.step, 5);
}

TEST_F(CopyTransferTest, WhatDoesNotArriveAsItWasSentIsRefused) {
  CopyRecord record = WriteHere(3, file_, "states");
  record.shard.sha256[0] = record.shard.sha256[0] == '0' ? '1' : '0';
  CopyClient client(address(), ends_, 0);
  const absl::Status status = Send(client, record);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not arrive as it was sent"));
  EXPECT_THAT(there_.List().copies, IsEmpty());
}

TEST_F(CopyTransferTest, OnlyTheShardsOfItsGenerationThatItTakesAreTakenIn) {
  CopyClient client(address(), ends_, 0);
  CopyRecord record = WriteHere(3, file_, "states");
  record.identity.generation = Generation(2);
  const auto fd = here_.OpenShard(WriteHere(3, file_, "states").key());
  EXPECT_EQ(client.Put(record.key(), -1, fd->get(), record.shard).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Send(client, WriteHere(3, "shard-0007-0000.safetensors", "states")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(there_.List().copies, IsEmpty());
  ASSERT_TRUE(there_.MarkResumed({Generation(5), 1}).ok());
  EXPECT_EQ(Send(client, WriteHere(4, file_, "states")).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(there_.ShardPath(WriteHere(4, file_, "states").key())));
}

TEST_F(CopyTransferTest, WhoDoesNotKnowTheSecretIsTurnedAway) {
  CopyEnds other = ends_;
  other.secret.back() = other.secret.back() == '0' ? '1' : '0';
  CopyClient client(address(), other, 0);
  const absl::Status status = Send(client, WriteHere(3, file_, "states"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not know the secret of this generation"));
  EXPECT_THAT(there_.List().copies, IsEmpty());
}

// If bytes from strangers counted as progress, the peers of a rank that hangs would think that the rank works.
TEST_F(CopyTransferTest, TheBytesOfStrangersAreNoProgressOfTheRank) {
  const CopyRecord record = WriteHere(3, file_, "content");
  CopyEnds stranger = ends_;
  stranger.secret = NewConnectionSecret();
  const int64_t before = OwnProgress().made();
  CopyClient refused(address(), stranger, 0);
  EXPECT_FALSE(Send(refused, record).ok());
  EXPECT_EQ(OwnProgress().made(), before) << "both ends have sent and received bytes, in this process";
  CopyClient admitted(address(), ends_, 0);
  EXPECT_TRUE(Send(admitted, record).ok());
  EXPECT_GT(OwnProgress().made(), before);
}

TEST_F(CopyTransferTest, WhoWantsAnotherRankOrGenerationIsTurnedAway) {
  for (const bool rank : {true, false}) {
    CopyEnds other = ends_;
    if (rank)
      other.to = 1;
    else
      other.generation = Generation(2);
    CopyClient client(address(), other, 0);
    EXPECT_EQ(Send(client, WriteHere(3, file_, "states")).code(), absl::StatusCode::kUnavailable);
  }
  server_->Stop();
  EXPECT_THAT(told_, HasSubstr("rank 2 wants rank 1 of generation 1, and this is rank 0 of 1"));
  EXPECT_THAT(told_, HasSubstr("rank 2 wants rank 0 of generation 2"));
  EXPECT_THAT(there_.List().copies, IsEmpty());
}

// A client without the secret sends the server's own proof back. The server must not accept it.
TEST_F(CopyTransferTest, AProofThatIsSentBackIsNone) {
  CopyLink link(*ConnectForCopies(address(), 0));
  std::string opening(64, '\0');
  const uint32_t mark = 0x4f43584c, version = 3;
  const int64_t generation = 1;
  std::memcpy(opening.data(), &mark, 4);
  std::memcpy(opening.data() + 4, &version, 4);
  std::memcpy(opening.data() + 8, &generation, 8);
  ASSERT_TRUE(link.Send(opening).ok());
  std::string answer(kChallengeBytes, '\0');
  ASSERT_TRUE(link.Receive(answer).ok());
  const std::optional<Challenge> challenge = DecodeChallenge(answer);
  ASSERT_TRUE(challenge.has_value());
  ASSERT_TRUE(link.Send(challenge->proof).ok());
  std::string more(1, '\0');
  EXPECT_EQ(link.Receive(more).code(), absl::StatusCode::kUnavailable);
  server_->Stop();
  EXPECT_THAT(told_, HasSubstr("turned away a connection for copies from 127.0.0.1:"));
  EXPECT_THAT(told_, HasSubstr("it says that it is rank 0, and does not know the secret of this generation"));
}

TEST_F(CopyTransferTest, StrangersThatSayNothingTakeNobodysPlace) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    auto fd = ConnectForCopies(address(), 0);
    ASSERT_TRUE(fd.ok());
    strangers.push_back(*std::move(fd));
  }
  CopyClient client(address(), ends_, 0);
  // The first attempts may be refused while the server refuses too many strangers.
  absl::Status sent = absl::UnknownError("not tried");
  const CopyRecord record = WriteHere(3, file_, "states");
  for (int attempt = 0; attempt < 1000 && !sent.ok(); ++attempt) sent = Send(client, record);
  EXPECT_TRUE(sent.ok()) << sent;
  server_->Stop();
  EXPECT_THAT(told_, HasSubstr("16 connections have proven nothing yet, and another one came"));
  EXPECT_THAT(told_, HasSubstr("further ones are not told of"));
}

TEST_F(CopyTransferTest, AServerWithoutFreeDescriptorsServesLater) {
  const UniqueFd waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(waiting.get()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> all;  // every descriptor below the limit
  for (int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0; fd = open("/dev/null", O_RDONLY | O_CLOEXEC))
    all.emplace_back(fd);
  EXPECT_EQ(errno, EMFILE);
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server.sin_port = htons(static_cast<uint16_t>(address().port));
  EXPECT_EQ(connect(waiting.get(), reinterpret_cast<sockaddr*>(&server), sizeof server), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));  // accept() fails in the meantime
  all.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CopyClient client(address(), ends_, 0);
  EXPECT_TRUE(Send(client, WriteHere(3, file_, "states")).ok());
}

TEST_F(CopyTransferTest, RequestsComeBackTheSameAndOthersAreRefused) {
  const CopyRequest request{
      .kind = CopyRequestKind::kPut, .key = {Generation(3), 17, file_}, .replaced_step = 15, .bytes = 1 << 30};
  EXPECT_EQ(DecodeCopyRequest(EncodeCopyRequest(request)), request);
  const auto refused = [&](auto change) {
    CopyRequest changed = request;
    change(changed);
    return !DecodeCopyRequest(EncodeCopyRequest(changed)).has_value();
  };
  EXPECT_TRUE(refused([](CopyRequest& r) { r.key.file = "../shard-0000-0000.safetensors"; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.key.file = "shard-/../../x.safetensors"; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.key.file = ""; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.key.generation = Generation(0); }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.key.step = -1; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.replaced_step = -2; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.bytes = -1; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.offset = -1; }));
  EXPECT_TRUE(refused([](CopyRequest& r) { r.kind = CopyRequestKind::kGet; }));  // asks for too many bytes at once
  for (size_t i = 0; i < 8; ++i) {
    CopyRequestBytes bytes = EncodeCopyRequest(request);
    bytes[i] = static_cast<char>(bytes[i] ^ 0x40);
    EXPECT_FALSE(DecodeCopyRequest(bytes).has_value()) << i;
  }
}

// If a sender disappears in the middle of a shard, the shard does not become a copy, and the server serves the next sender.
TEST_F(CopyTransferTest, HalfAShardIsNone) {
  {
    auto fd = ConnectForCopies(address(), 0);
    ASSERT_TRUE(fd.ok());
    CopyLink link(*std::move(fd));
    ASSERT_TRUE(link.Open(ends_).ok());
    const CopyRequest request{.kind = CopyRequestKind::kPut, .key = {Generation(1), 3, file_}, .bytes = 1000};
    ASSERT_TRUE(link.Send(EncodeCopyRequest(request)).ok());
    ASSERT_TRUE(link.Send(std::string(500, 'x')).ok());
  }
  CopyClient client(address(), ends_, 0);
  ASSERT_TRUE(Send(client, WriteHere(4, file_, "states")).ok());
  ASSERT_EQ(there_.List().copies.size(), 1u);
  EXPECT_EQ(there_.List().copies[0].identity.step, 4);
}

TEST_F(CopyTransferTest, NoiseIsDropped) {
  auto fd = ConnectForCopies(address(), 0);
  ASSERT_TRUE(fd.ok());
  CopyLink link(*std::move(fd));
  ASSERT_TRUE(link.Send(std::string(kCopyRequestBytes, '\x55')).ok());
  std::string answer(1, '\0');
  EXPECT_EQ(link.Receive(answer).code(), absl::StatusCode::kUnavailable);
}

// A client that waits for a silent server ends at once when it is told to end.
TEST_F(CopyTransferTest, AClientThatEndsWaitsForNobody) {
  const ListeningSocket silent = ListenTcp("127.0.0.1").value();
  CopyClient client({"127.0.0.1", silent.port}, ends_, 0);
  const CopyRecord record = WriteHere(3, file_, Pattern(100));
  std::thread ender([&] {
    // The client has connected. From now on it waits for the server's answer.
    pollfd polled{silent.fd, POLLIN, 0};
    while (poll(&polled, 1, -1) < 1) continue;
    client.End();
  });
  EXPECT_EQ(Send(client, record).code(), absl::StatusCode::kUnavailable);
  ender.join();
  EXPECT_EQ(Send(client, record).code(), absl::StatusCode::kUnavailable);
  close(silent.fd);
}

// A server closes connections that were idle for a long time. The client's next request must then open a new connection.
TEST_F(CopyTransferTest, AReaderConnectsAgain) {
  const ListeningSocket listening = ListenTcp("127.0.0.1").value();
  std::thread server([&] {
    for (int connection = 0; connection < 2; ++connection) {
      pollfd polled{listening.fd, POLLIN, 0};
      while (poll(&polled, 1, -1) < 1) continue;
      CopyLink link(UniqueFd(accept4(listening.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
      CopyRequestBytes request;
      EXPECT_TRUE(link.Admit(ends_).ok() && link.Receive(request).ok() && link.SendReply(absl::OkStatus()).ok());
      EXPECT_TRUE(link.Send(std::string("states")).ok());
    }
  });
  CopyClient client({"127.0.0.1", listening.port}, ends_, 0);
  std::string part(6, '\0');
  const CopyKey key{Generation(1), 3, file_};
  EXPECT_TRUE(client.Get(key, 0, part).ok());
  EXPECT_TRUE(client.Get(key, 0, part).ok());
  EXPECT_EQ(part, "states");
  server.join();
  close(listening.fd);
}

TEST_F(CopyTransferTest, AServerThatStopsEndsItsConnections) {
  CopyClient client(address(), ends_, 0);
  const CopyRecord record = WriteHere(3, file_, "states");
  ASSERT_TRUE(Send(client, record).ok());
  server_->Stop();
  EXPECT_EQ(Send(client, record).code(), absl::StatusCode::kUnavailable);
}

// Two nodes hold the states together. Any layout can load them: a rank reads from the other node what its own node lacks.
TEST_F(CopyTransferTest, StatesLoadFromTwoNodesInAnyLayout) {
  world_.Train(9);
  WholeCopies whole{.identity = world_.Identity(9)};
  for (WorldRank& rank : world_.ranks()) {
    const std::string file = ShardFile(kLayout, rank.context.pipeline_rank, rank.tp_rank, 0);
    const bool here = rank.tp_rank == 0;
    const CopyStore& store = here ? here_ : there_;
    const SafetensorsHeader header = ShardHeader(whole.identity, rank.context, rank.tp_rank, rank.state.updated(), false);
    const auto written =
        WriteShardFile(PosixFileSystem(), folder_.path(), file, header, ContentOf(rank.state, rank.state.updated()));
    ASSERT_TRUE(written.ok());
    std::filesystem::rename(folder_.Path(file), store.ShardPath({Generation(1), 9, file}));
    whole.files.push_back(*written);
    whole.nodes.push_back(here ? 0 : 1);
  }
  CopyClient client(address(), ends_, 0);
  CopyFiles files(whole, here_, 0, [&](int32_t) -> CopyClient& { return client; });
  for (const ParallelLayout& layout : {kLayout, ParallelLayout{1, 1, 1}, ParallelLayout{2, 1, 1}, ParallelLayout{1, 2, 1}}) {
    CheckpointWorld other(layout);
    other.Poison();
    for (WorldRank& rank : other.ranks()) {
      const absl::Status loaded = LoadCopies(files.Summary(), other.Identity(9), rank.context, rank.tp_rank, rank.state,
                                             ReadShare{.index = 0, .of = 1}, files);
      ASSERT_TRUE(loaded.ok()) << loaded;
    }
    EXPECT_TRUE(other.Holds(9));
  }
  // Only reading is supported.
  EXPECT_FALSE(files.CreateFile("x").ok() || files.RemoveTree("x").ok() || files.List("x").ok());
  EXPECT_EQ(files.OpenFile("x/shard-0009-0000.safetensors").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lynx::worker
