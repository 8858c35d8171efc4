// A thin C++ layer over libpq, PostgreSQL's C interface: one connection, statements with typed parameters, statuses, and time
// limits. Not thread-safe.
#ifndef LYNX_SERVER_STORE_POSTGRES_CONNECTION_H_
#define LYNX_SERVER_STORE_POSTGRES_CONNECTION_H_

#include <libpq-fe.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/engine.h"

namespace lynx::server {

// Checks a connection URL (postgresql://...). InvalidArgument: libpq does not take it. The error never contains a password.
absl::Status CheckPostgresUrl(const std::string& url);
// The URL with *** in place of its passwords, for messages. If the URL is odd, more may be replaced.
std::string WithoutPassword(const std::string& url);

// What a statement returned. All rows are in memory.
class PostgresResult {
 public:
  explicit PostgresResult(PGresult* result) : result_(result) {}

  int rows() const { return PQntuples(result_.get()); }
  int64_t Int(int row, int column) const;       // an integer or a boolean
  std::string Text(int row, int column) const;  // a text or a blob
  std::string command() const { return PQcmdStatus(result_.get()); }

 private:
  struct Closer {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  std::unique_ptr<PGresult, Closer> result_;
};

// How a connection is made.
struct ConnectOptions {
  // How long a statement may take. A database that does not answer for that long is treated as gone.
  std::chrono::milliseconds answer = std::chrono::seconds(30);
  std::string name = "lynx-server";  // what the database shows as the name of the program
  std::string seconds;               // limit in seconds for connecting to one host; empty: $PGCONNECT_TIMEOUT, or 5
};

class PostgresConnection {
 public:
  // Unavailable: the database cannot be reached, or it refuses the user.
  static absl::StatusOr<std::unique_ptr<PostgresConnection>> Connect(const std::string& url,
                                                                     const ConnectOptions& options = {});

  // Runs one statement; each `?` in it is a parameter. The errors are those of an Engine. If the connection is lost or the
  // database does not answer in time, is_lost() is true from then on.
  absl::StatusOr<PostgresResult> Run(const std::string& sql, const std::vector<Parameter>& parameters = {},
                                     StatementUse use = StatementUse::kOnce);
  // From now on a commit of this session is answered when it is as durable as PostgreSQL can make it.
  absl::Status MakeCommitsDurable();
  // Runs statements without parameters, separated by semicolons.
  absl::Status Execute(const std::string& statements);

  bool is_lost() const { return is_lost_; }
  std::string Setting(const char* name) const;  // the database reports it when a session starts

 private:
  struct Closer {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  PostgresConnection(PGconn* connection, std::chrono::milliseconds answer_time)
      : connection_(connection), answer_time_(answer_time) {}

  // Waits for all results of what was sent, and returns the last of them or the first error.
  absl::StatusOr<PostgresResult> Await();
  // Waits until the next result can be read without blocking.
  absl::Status AwaitNext(std::chrono::steady_clock::time_point deadline);
  absl::Status Lost();
  absl::Status StatusOf(const PGresult* result);

  std::unique_ptr<PGconn, Closer> connection_;
  const std::chrono::milliseconds answer_time_;
  std::map<std::string, std::string> kept_;  // names of prepared statements, by text
  bool is_lost_ = false;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_POSTGRES_CONNECTION_H_
