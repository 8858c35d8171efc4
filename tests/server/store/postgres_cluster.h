// A PostgreSQL of the test process: its own files in a temporary folder, on a Unix socket there. It is started at the first
// use, and ends with the process. If the tests run as root, PostgreSQL runs as the user postgres or nobody, because it refuses
// root. It does not sync its files, which makes tests fast: they kill PostgreSQL, but not the machine.
#ifndef LYNX_TESTS_SERVER_STORE_POSTGRES_CLUSTER_H_
#define LYNX_TESTS_SERVER_STORE_POSTGRES_CLUSTER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "server/store/postgres_connection.h"

namespace lynx::server {

class PostgresCluster {
 public:
  // Null: PostgreSQL is not installed. Then a test calls LYNX_SKIP_WITHOUT_POSTGRES.
  static PostgresCluster* Get();

  // Makes an empty database and returns its URL. Its owner is the superuser lynx, who needs no password. The user guarded needs
  // the password kPassword.
  std::string NewDatabase(const std::string& options = "");
  static constexpr char kPassword[] = "Sesame-7431";

  // A connection of the test itself.
  std::unique_ptr<PostgresConnection> Connect(const std::string& url);
  // Runs statements on a connection of its own.
  void Execute(const std::string& url, const std::string& statements);
  // The first column of the first row.
  int64_t Query(const std::string& url, const std::string& sql);
  // Ends the sessions of the server on this database, and waits until they have ended. Returns their number.
  int64_t EndSessions(const std::string& url);
  // Kills PostgreSQL as if by a crash. Start starts it again; it recovers what was committed.
  void Crash();
  void Start();

  const std::string& socket_directory() const { return directory_; }
  // The URL of a database, for a user who may be another than lynx.
  std::string UrlOf(const std::string& database, const std::string& user) const;

 private:
  PostgresCluster() = default;
  friend struct PostgresClusterEnd;
  bool Make();

  std::string binaries_;  // the folder of PostgreSQL's programs
  std::string directory_;
  uid_t user_ = 0;
  gid_t group_ = 0;
  pid_t pid_ = 0;
  int databases_ = 0;
};

#define LYNX_SKIP_WITHOUT_POSTGRES()                                                                       \
  if (PostgresCluster::Get() == nullptr) {                                                                 \
    GTEST_SKIP() << "PostgreSQL is not installed (postgresql-15): scripts/install.sh --tests installs it"; \
  }

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_STORE_POSTGRES_CLUSTER_H_
