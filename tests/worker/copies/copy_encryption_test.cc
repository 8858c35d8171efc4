// Tests that encrypted connections for copies show nothing to a person on the network and let nobody change anything. The same
// checks on plain connections show that the tests can find such text and changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "common/digest.h"
#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/collectives/wire_tap.h"
#include "tests/worker/test_folder.h"
#include "worker/copies/copy_client.h"
#include "worker/copies/copy_files.h"
#include "worker/copies/copy_server.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const ParallelLayout kLayout{.tp = 2, .pp = 2, .dp = 1};
constexpr std::string_view kPlain = "a plain text that is known";

std::string Content() {
  std::string text(1'000'000, 'x');
  for (size_t at = 0; at + kPlain.size() < text.size(); at += 1000) text.replace(at, kPlain.size(), kPlain);
  return text;
}

// Rank 2 on node 0 sends copies to rank 0 on node 1, through a tap that can read and change the bytes.
class CopyEncryptionTest : public testing::Test {
 protected:
  void Serve(bool encrypt, WireTap::Change change = nullptr) {
    ends_.encrypt = encrypt;
    ASSERT_TRUE(here_.Create().ok() && there_.Create().ok());
    auto server = CopyServer::Listen({.host = "127.0.0.1",
                                      .run = world_.Identity(0),
                                      .secret = ends_.secret,
                                      .encrypt = encrypt,
                                      .most_connections = 8,
                                      .tell =
                                          [this](const std::string& line) {
                                            const std::lock_guard lock(mutex_);
                                            told_ += line + "\n";
                                          }},
                                     there_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Serve(ShardFiles(kLayout));
    tap_ = std::make_unique<WireTap>(PeerAddress{"127.0.0.1", server_->port()}, std::move(change));
  }
  absl::Status Put(CopyClient& client) {
    const std::string content = Content();
    record_ = {world_.Identity(3), {file_, Bytes(static_cast<int64_t>(content.size())), Sha256Hex(content)}};
    const auto begun = here_.BeginShard(record_.key(), std::nullopt);
    EXPECT_TRUE(begun.ok() && WriteAll(begun->get(), content, "it").ok() && here_.Complete(record_).ok());
    const auto fd = here_.OpenShard(record_.key());
    EXPECT_TRUE(fd.ok());
    return client.Put(record_.key(), -1, fd->get(), record_.shard);
  }
  // Stops the server and returns the messages that it has logged.
  std::string Told() {
    server_->Stop();
    const std::lock_guard lock(mutex_);
    return told_;
  }

  const TestFolder folder_;
  CheckpointWorld world_{kLayout};
  const CopyStore here_{folder_.Path("here"), JobId("job-1")}, there_{folder_.Path("there"), JobId("job-1")};
  CopyEnds ends_{.secret = NewConnectionSecret(), .generation = Generation(1), .from = 2, .to = 0};
  std::mutex mutex_;
  std::string told_;  // guarded by mutex_
  CopyRecord record_;
  std::unique_ptr<CopyServer> server_;
  std::unique_ptr<WireTap> tap_;
  const std::string file_ = ShardFile(kLayout, 0, 0, 0);
};

TEST_F(CopyEncryptionTest, APlainConnectionShowsTheStates) {
  Serve(false);
  CopyClient client(tap_->address(), ends_, 0);
  ASSERT_TRUE(Put(client).ok());
  server_->Stop();
  EXPECT_NE(tap_->Seen().find(kPlain), std::string::npos);
  EXPECT_NE(tap_->Seen().find(file_), std::string::npos);
}

TEST_F(CopyEncryptionTest, AnEncryptedConnectionShowsNothingAndBringsTheSame) {
  Serve(true);
  CopyClient client(tap_->address(), ends_, 0);
  const absl::Status put = Put(client);
  ASSERT_TRUE(put.ok()) << put;
  EXPECT_TRUE(there_.Verify(record_).ok());
  std::string part(700'000, '\0');
  ASSERT_TRUE(client.Get(record_.key(), 123'456, part).ok());
  EXPECT_TRUE(part == Content().substr(123'456, part.size()));
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_GT(tap_->Seen().size(), 1'700'000u);
  EXPECT_EQ(tap_->Seen().find(kPlain), std::string::npos);
  EXPECT_EQ(tap_->Seen().find(file_), std::string::npos);
}

TEST_F(CopyEncryptionTest, AFlippedBitEndsTheConnectionAndBothEndsAreNamed) {
  constexpr int64_t kWhere = 300'000;
  Serve(true, [](int64_t at, std::string& bytes) {
    if (at > kWhere || at + static_cast<int64_t>(bytes.size()) <= kWhere) return;
    char& changed = bytes[static_cast<size_t>(kWhere - at)];
    changed = static_cast<char>(changed ^ 4);
  });
  CopyClient client(tap_->address(), ends_, 0);
  EXPECT_EQ(Put(client).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Told(), AllOf(HasSubstr("bytes of a copy from rank 2 to rank 0 were changed"), HasSubstr("is not authentic")));
  EXPECT_THAT(there_.List().copies, IsEmpty());
}

TEST_F(CopyEncryptionTest, EndsThatDoNotAgreeRefuseEachOther) {
  Serve(true);
  ends_.encrypt = false;
  CopyClient client(tap_->address(), ends_, 0);
  EXPECT_EQ(Put(client).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Told(), HasSubstr("rank 2 does not encrypt its connection, and rank 0 does"));
}

}  // namespace
}  // namespace lynx::worker
