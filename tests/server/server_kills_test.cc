#include "tests/server/server_kills.h"

#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/process.h"
#include "server/store/store_address.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

class ServerKills : public ::testing::Test {
 protected:
  ServerKills() {
    std::string pattern = ::testing::TempDir() + "lynx_kills_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~ServerKills() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(ServerKills, LoseNothingThatWasAcknowledged) {
  const absl::StatusOr<KillsResult> result = KillAgainAndAgain({.directory = directory_, .kills = 5, .seed = 5});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->violations, ::testing::IsEmpty());
  EXPECT_GT(result->submitted, 0);
  EXPECT_FALSE(result->recoveries.empty());
}

// The test itself holds the database open. The process that holds it need not be a server.
TEST_F(ServerKills, ASecondServerRefusesAndSaysWhy) {
  const absl::StatusOr<std::unique_ptr<Store>> first = OpenStore("", directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string said = directory_ + "/said";
  const UniqueFd out(::open(said.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  absl::StatusOr<Child> second = SpawnInSession({std::string(LYNX_BINARY_DIR) + "/bin/lynx-server", "--listen=127.0.0.1:0",
                                                 "--data-dir=" + directory_, "--metrics-address="},
                                                {.out = out.get(), .error = out.get()});
  ASSERT_TRUE(second.ok()) << second.status();
  pollfd end{.fd = second->pidfd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&end, 1, 60'000), 1) << "it runs";
  EXPECT_EQ(ReapChild(second->pidfd)->code, 1);
  std::stringstream text;
  text << std::ifstream(said).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("the database " + directory_ + "/lynx.db is in use by another lynx-server: stop that one"));
}

}  // namespace
}  // namespace lynx::server
