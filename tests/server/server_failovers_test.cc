// Runs several lynx-server processes on one PostgreSQL database. While clients submit jobs, the leader is killed, or stopped
// and continued.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/standby.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/process.h"
#include "proto/convert.h"
#include "tests/server/store/postgres_cluster.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;

constexpr int kServers = 3;
constexpr int kLeaseLost = 3;  // the exit code

// A server with its own data directory. At each start it listens on another free port.
class Process {
 public:
  Process(std::string directory, std::string store) : directory_(std::move(directory)), store_(std::move(store)) {
    std::filesystem::create_directories(directory_);
  }
  ~Process() {
    if (child_.pidfd.valid()) Signal(SIGKILL), Await();
  }

  void Start() {
    std::filesystem::remove(directory_ + "/server.address");
    const UniqueFd out(::open((directory_ + "/said").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    absl::StatusOr<Child> child =
        SpawnInSession({std::string(LYNX_BINARY_DIR) + "/bin/lynx-server", "--listen=127.0.0.1:0", "--data-dir=" + directory_,
                        "--store=" + store_, "--metrics-address=", "--page-address="},
                       {.out = out.get(), .error = out.get()});
    LYNX_CHECK(child.ok());
    child_ = *std::move(child);
    while (address_.empty() || !std::filesystem::exists(directory_ + "/server.address")) {
      std::ifstream(directory_ + "/server.address") >> address_;
      if (HasEnded()) break;
      std::this_thread::sleep_for(milliseconds(5));
    }
    std::ifstream(directory_ + "/server.address") >> address_;
    channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  }
  void Signal(int signal) { SignalProcess(child_.pidfd, signal); }
  bool HasEnded() const {
    pollfd end{.fd = child_.pidfd.get(), .events = POLLIN, .revents = 0};
    return ::poll(&end, 1, 0) == 1;
  }
  // Waits for the end of the process, and returns its exit code.
  int Await() {
    pollfd end{.fd = child_.pidfd.get(), .events = POLLIN, .revents = 0};
    while (::poll(&end, 1, -1) != 1) continue;
    const int code = ReapChild(child_.pidfd)->code;
    child_.pidfd.Reset();
    return code;
  }
  std::string Said() const {
    std::stringstream text;
    text << std::ifstream(directory_ + "/said").rdbuf();
    return text.str();
  }

  struct Answer {
    grpc::Status status;
    bool stands_by = false;
    std::string job;
    bool existed = false;
  };
  Answer Submit(const std::string& key, milliseconds patience = milliseconds(60'000)) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    v1::SubmitJobRequest request;
    *request.mutable_spec() = ToProto(MakeSpec(key));
    request.set_idempotency_key(key);
    v1::SubmitJobResponse response;
    Answer answer;
    answer.status = v1::Jobs::NewStub(channel_)->SubmitJob(&context, request, &response);
    answer.stands_by = context.GetServerTrailingMetadata().count(kStandbyKey) > 0;
    answer.job = response.job().id();
    answer.existed = response.existed();
    return answer;
  }
  // True if the server answers as the leader does.
  bool Leads() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(500));
    v1::ListJobsResponse response;
    return v1::Jobs::NewStub(channel_)->ListJobs(&context, {}, &response).ok();
  }

 private:
  const std::string directory_, store_;
  std::string address_;
  Child child_;
  std::shared_ptr<grpc::Channel> channel_;
};

class ServerFailovers : public ::testing::Test {
 protected:
  void SetUp() override {
    LYNX_SKIP_WITHOUT_POSTGRES();
    url_ = PostgresCluster::Get()->NewDatabase();
    std::string pattern = ::testing::TempDir() + "lynx_failovers_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    for (int n = 0; n < kServers; ++n) {
      servers_.push_back(std::make_unique<Process>(absl::StrCat(directory_, "/", n), url_));
      servers_.back()->Start();
    }
  }
  void TearDown() override {
    servers_.clear();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  // Waits until a server other than `not_this` leads.
  Process& Leader(const Process* not_this = nullptr) {
    while (true) {
      for (const auto& server : servers_) {
        if (server.get() != not_this && server->Leads()) return *server;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  // Calls one server after another until one acknowledges the submission. A client that knows all servers does the same.
  void SubmitSomewhere(const std::string& key) {
    for (size_t n = 0;; ++n) {
      const Process::Answer answer = servers_[n % servers_.size()]->Submit(key, milliseconds(2'000));
      if (!answer.status.ok()) continue;
      const std::lock_guard lock(mutex_);
      const auto [found, is_new] = acknowledged_.emplace(key, answer.job);
      EXPECT_EQ(found->second, answer.job) << key << " was made twice";
      return;
    }
  }
  int64_t Query(const std::string& sql) { return PostgresCluster::Get()->Query(url_, sql); }
  // Checks that the database contains each acknowledged job exactly once.
  void CheckAcknowledged() {
    const std::unique_ptr<PostgresConnection> connection = PostgresCluster::Get()->Connect(url_);
    const absl::StatusOr<PostgresResult> rows = connection->Run("SELECT idempotency_key, id FROM jobs");
    ASSERT_TRUE(rows.ok()) << rows.status();
    std::map<std::string, std::string> stored;
    for (int row = 0; row < rows->rows(); ++row) {
      EXPECT_TRUE(stored.emplace(rows->Text(row, 0), rows->Text(row, 1)).second) << rows->Text(row, 0) << " is there twice";
    }
    for (const auto& [key, job] : acknowledged_) EXPECT_EQ(stored[key], job) << key;
    EXPECT_EQ(stored.size(), acknowledged_.size());
  }

  std::string url_, directory_;
  std::vector<std::unique_ptr<Process>> servers_;
  std::mutex mutex_;
  std::map<std::string, std::string> acknowledged_;  // key -> job of acknowledged submissions; guarded by mutex_
};

TEST_F(ServerFailovers, KilledAndStoppedLeadersLoseAndDoubleNothing) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;
  for (int client = 0; client < 3; ++client) {
    clients.emplace_back([this, client, &stop] {
      for (int n = 0; !stop; ++n) SubmitSomewhere(absl::StrCat("c", client, "-", n));
    });
  }
  for (const int signal : {SIGKILL, SIGSTOP, SIGTERM, SIGSTOP}) {
    Process& leader = Leader();
    leader.Signal(signal);
    const Process& next = Leader(&leader);
    EXPECT_NE(&next, &leader);
    if (signal == SIGSTOP) leader.Signal(SIGCONT);
    const int code = leader.Await();
    if (signal != SIGKILL) EXPECT_EQ(code, signal == SIGSTOP ? kLeaseLost : 0) << leader.Said();
    leader.Start();
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GE(acknowledged_.size(), 4u);
  CheckAcknowledged();
  EXPECT_GE(Query("SELECT epoch FROM lynx_lease"), 5);
}

// The leader is stopped during a transaction, because a trigger waits for a lock of the test. The transaction has locked the
// row of the store. Another server must still take over, and the transaction must have no effect.
TEST_F(ServerFailovers, ALeaderThatIsStoppedInATransactionWritesNothing) {
  PostgresCluster& cluster = *PostgresCluster::Get();
  Process& leader = Leader();
  ASSERT_TRUE(leader.Submit("before").status.ok());
  cluster.Execute(
      url_,
      "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.idempotency_key='late' THEN PERFORM "
      "pg_advisory_xact_lock(1); END IF; RETURN NULL; END $$; CREATE TRIGGER wait AFTER INSERT ON jobs FOR EACH ROW "
      "EXECUTE FUNCTION wait()");
  const std::unique_ptr<PostgresConnection> gatekeeper = cluster.Connect(url_);
  ASSERT_TRUE(gatekeeper->Execute("SELECT pg_advisory_lock(1)").ok());
  Process::Answer late;
  std::thread client([&] { late = leader.Submit("late"); });
  while (Query("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) continue;
  leader.Signal(SIGSTOP);
  const Process& next = Leader(&leader);
  cluster.Execute(url_, "DROP TRIGGER wait ON jobs");
  ASSERT_TRUE(gatekeeper->Execute("SELECT pg_advisory_unlock(1)").ok());
  leader.Signal(SIGCONT);
  EXPECT_EQ(leader.Await(), kLeaseLost) << leader.Said();
  client.join();
  EXPECT_EQ(late.status.error_code(), grpc::UNAVAILABLE) << "it was not written, so it must not be acknowledged";
  EXPECT_FALSE(next.Submit("late").existed);
  EXPECT_TRUE(next.Submit("before").existed);
  EXPECT_EQ(Query("SELECT count(*) FROM jobs"), 2);
}

// Calls wait in a stopped leader. When the leader continues, it must answer them, but not as a leader.
TEST_F(ServerFailovers, AStoppedLeaderAnswersNothingWhenItGoesOn) {
  Process& leader = Leader();
  ASSERT_TRUE(leader.Submit("k").status.ok());
  leader.Signal(SIGSTOP);
  std::vector<std::thread> clients;
  std::atomic<int> led{0};
  const Process& next = Leader(&leader);
  for (int n = 0; n < 8; ++n) {
    clients.emplace_back([&] { led += leader.Submit("k").status.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(next.Submit("after").status.ok());
  leader.Signal(SIGCONT);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(led, 0);
  EXPECT_EQ(leader.Await(), kLeaseLost);
}

}  // namespace
}  // namespace lynx::server
