#include "tests/server/store/postgres_cluster.h"

#include <fcntl.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;

// Returns the folder of the newest PostgreSQL. Debian's packages have one folder for each version.
std::string FindBinaries() {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", ignored)) {
    const std::string folder = version.path().string() + "/bin";
    if (std::filesystem::exists(folder + "/initdb", ignored)) found.push_back(folder);
  }
  return found.empty() ? "" : *std::max_element(found.begin(), found.end());
}

// Starts a program as another user. It is killed when this process ends. What it prints goes to `log`.
pid_t Spawn(const std::vector<std::string>& argv, uid_t user, gid_t group, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  const int in = ::open("/dev/null", O_RDONLY);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::close_range(3, ~0U, 0);
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(group) != 0 || ::setuid(user) != 0)) ::_exit(126);
  ::prctl(PR_SET_PDEATHSIG, SIGQUIT);  // set after the change of the user, because that change resets it
  if (::getppid() != parent || ::chdir("/") != 0) ::_exit(126);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

// Ends PostgreSQL and removes its files when the tests of this process have run.
struct PostgresClusterEnd : public ::testing::Environment {
  void TearDown() override {
    PostgresCluster* const cluster = PostgresCluster::Get();
    if (cluster == nullptr) return;
    cluster->Crash();
    std::filesystem::remove_all(cluster->directory_);
  }
};

PostgresCluster* PostgresCluster::Get() {
  static PostgresCluster* const cluster = []() -> PostgresCluster* {
    std::unique_ptr<PostgresCluster> made(new PostgresCluster());
    if (!made->Make()) return nullptr;
    ::testing::AddGlobalTestEnvironment(new PostgresClusterEnd());
    return made.release();
  }();
  return cluster;
}

bool PostgresCluster::Make() {
  binaries_ = FindBinaries();
  if (binaries_.empty()) return false;
  std::string pattern = ::testing::TempDir() + "lynx_pg_XXXXXX";
  directory_ = ::mkdtemp(pattern.data());
  user_ = ::geteuid();
  group_ = ::getegid();
  if (user_ == 0) {
    const passwd* other = ::getpwnam("postgres");
    if (other == nullptr) other = ::getpwnam("nobody");
    LYNX_CHECK(other != nullptr);
    user_ = other->pw_uid;
    group_ = other->pw_gid;
    LYNX_CHECK(::chown(directory_.c_str(), user_, group_) == 0);
  }
  ::chmod(directory_.c_str(), 0755);
  const std::string data = directory_ + "/data";
  const pid_t init =
      Spawn({binaries_ + "/initdb", "-D", data, "-U", "lynx", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"},
            user_, group_, directory_ + "/log");
  int status = 0;
  LYNX_CHECK(::waitpid(init, &status, 0) == init);
  LYNX_CHECK(status == 0);
  std::ofstream(data + "/pg_hba.conf") << "local all guarded scram-sha-256\nlocal all all trust\n";
  std::ofstream(data + "/postgresql.conf", std::ios::app)
      << "listen_addresses = ''\nunix_socket_directories = '" << directory_
      << "'\nfsync = off\nfull_page_writes = off\nshared_buffers = 16MB\nmax_connections = 20\n";
  Start();
  Execute(UrlOf("postgres", "lynx"), absl::StrCat("CREATE ROLE guarded LOGIN PASSWORD '", kPassword, "'"));
  return true;
}

void PostgresCluster::Start() {
  pid_ = Spawn({binaries_ + "/postgres", "-D", directory_ + "/data"}, user_, group_, directory_ + "/log");
  while (PQping(UrlOf("postgres", "lynx").c_str()) != PQPING_OK) {
    int status = 0;
    LYNX_CHECK(::waitpid(pid_, &status, WNOHANG) == 0);  // PostgreSQL is still running
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void PostgresCluster::Crash() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGQUIT);  // "immediate": all processes end without cleaning up
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

std::string PostgresCluster::UrlOf(const std::string& database, const std::string& user) const {
  return absl::StrCat("postgresql://", user, "@/", database, "?host=", directory_);
}

std::string PostgresCluster::NewDatabase(const std::string& options) {
  const std::string name = absl::StrCat("test", ++databases_);
  Execute(UrlOf("postgres", "lynx"), absl::StrCat("CREATE DATABASE ", name, " ", options));
  return UrlOf(name, "lynx");
}

std::unique_ptr<PostgresConnection> PostgresCluster::Connect(const std::string& url) {
  absl::StatusOr<std::unique_ptr<PostgresConnection>> connection = PostgresConnection::Connect(url);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return connection.ok() ? *std::move(connection) : nullptr;
}

void PostgresCluster::Execute(const std::string& url, const std::string& statements) {
  const absl::Status status = Connect(url)->Execute(statements);
  EXPECT_TRUE(status.ok()) << status << " " << statements;
}

int64_t PostgresCluster::Query(const std::string& url, const std::string& sql) {
  const absl::StatusOr<PostgresResult> result = Connect(url)->Run(sql);
  EXPECT_TRUE(result.ok()) << result.status() << " " << sql;
  return result.ok() && result->rows() > 0 ? result->Int(0, 0) : -1;
}

int64_t PostgresCluster::EndSessions(const std::string& url) {
  constexpr char kOthers[] =
      "FROM pg_stat_activity WHERE datname=current_database() AND application_name='lynx-server' AND pid<>pg_backend_pid()";
  const int64_t ended = Query(url, absl::StrCat("SELECT count(pg_terminate_backend(pid)) ", kOthers));
  while (Query(url, absl::StrCat("SELECT count(*) ", kOthers)) > 0) std::this_thread::sleep_for(milliseconds(5));
  return ended;
}

}  // namespace lynx::server
