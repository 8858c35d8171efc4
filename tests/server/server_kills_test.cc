#include "tests/server/server_kills.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "node/file.h"
#include "node/process.h"
#include "server/store/store_address.h"
#include "tests/server/store/postgres_cluster.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

class ServerKills : public ::testing::Test {
 protected:
  ServerKills() {
    std::string pattern = ::testing::TempDir() + "lynx_kills_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~ServerKills() override {
    if (server_.pidfd.valid()) SignalProcess(server_.pidfd, SIGKILL);
    std::filesystem::remove_all(directory_);
  }

  // Starts a server on directory_, whose output goes to a file.
  void Start(const std::vector<std::string>& more = {}) {
    const UniqueFd out(::open((directory_ + "/said").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    std::vector<std::string> argv = {std::string(LYNX_BINARY_DIR) + "/bin/lynx-server", "--listen=127.0.0.1:0",
                                     "--data-dir=" + directory_, "--metrics-address=", "--page-address="};
    argv.insert(argv.end(), more.begin(), more.end());
    absl::StatusOr<Child> server = SpawnInSession(argv, {.out = out.get(), .error = out.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Waits for the end of the server.
  int ExitCode() {
    pollfd end{.fd = server_.pidfd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&end, 1, 60'000) != 1) return -1;  // it runs
    const int code = ReapChild(server_.pidfd)->code;
    server_.pidfd.Reset();
    return code;
  }
  std::string Said() const {
    std::stringstream text;
    text << std::ifstream(directory_ + "/said").rdbuf();
    return text.str();
  }

  std::string directory_;
  Child server_;
};

TEST_F(ServerKills, LoseNothingThatWasAcknowledged) {
  const absl::StatusOr<KillsResult> result = KillAgainAndAgain({.directory = directory_, .kills = 5, .seed = 5});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->violations, ::testing::IsEmpty());
  EXPECT_GT(result->submitted, 0);
  EXPECT_FALSE(result->recoveries.empty());
}

TEST_F(ServerKills, LoseNothingThatWasAcknowledgedOnPostgres) {
  LYNX_SKIP_WITHOUT_POSTGRES();
  const std::string url = PostgresCluster::Get()->NewDatabase();
  const absl::StatusOr<KillsResult> result =
      KillAgainAndAgain({.directory = directory_, .store = url, .kills = 5, .seed = 5, .submissions_per_second = 50});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->violations, ::testing::IsEmpty());
  EXPECT_GT(result->submitted, 0);
  EXPECT_FALSE(result->recoveries.empty());
}

// The test itself holds the database open: any process, not only a server, can hold it.
TEST_F(ServerKills, ASecondServerRefusesAndSaysWhy) {
  const absl::StatusOr<std::unique_ptr<Store>> first = OpenStore("", directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  Start();
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(Said(), HasSubstr("the database " + directory_ + "/lynx.db is in use by another lynx-server: stop that one"));
}

// The other server uses another store. So only the lock of the directory can keep it out.
TEST_F(ServerKills, ASecondServerOnOneDataDirectoryRefuses) {
  const absl::StatusOr<UniqueFd> lock = LockFile(directory_ + "/server.lock");
  ASSERT_TRUE(lock.ok()) << lock.status();
  Start({"--store=sqlite:" + directory_ + "/other.db"});
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(Said(), HasSubstr("the data directory " + directory_ + " is in use by another lynx-server ("));
  EXPECT_THAT(Said(), HasSubstr(absl::StrCat("locked by process ", ::getpid())));
}

TEST_F(ServerKills, AnAdvertisedAddressWithoutAPortIsRefused) {
  for (const char* address : {"host", "host:", ":7470", "host:0", "host:70000", "a:1,b:2", "http://a:1"}) {
    Start({absl::StrCat("--advertise=", address)});
    EXPECT_EQ(ExitCode(), 2) << address;
    EXPECT_THAT(Said(), HasSubstr(absl::StrCat("--advertise '", address, "' is not HOST:PORT"))) << address;
    std::filesystem::remove(directory_ + "/said");
  }
}

// The server's process is stopped while it is idle, and the test takes the store.
TEST_F(ServerKills, AServerWhoseStoreIsTakenEnds) {
  LYNX_SKIP_WITHOUT_POSTGRES();
  PostgresCluster& cluster = *PostgresCluster::Get();
  const std::string url = cluster.NewDatabase();
  Start({"--store=" + url});
  while (!std::filesystem::exists(directory_ + "/server.address")) {
    ASSERT_FALSE(HasEnded(server_.pidfd)) << Said();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  SignalProcess(server_.pidfd, SIGSTOP);
  const absl::StatusOr<std::unique_ptr<Store>> other = OpenStore(url, "");
  ASSERT_TRUE(other.ok()) << other.status();
  SignalProcess(server_.pidfd, SIGCONT);
  EXPECT_EQ(ExitCode(), 3);
  EXPECT_THAT(Said(), HasSubstr("another lynx-server"));
  EXPECT_TRUE((*other)->Commit({InsertEvent{JobId("a"), {.sequence = 1, .kind = "submitted"}}}).ok());
}

}  // namespace
}  // namespace lynx::server
