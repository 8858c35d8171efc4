// PostgresEngine: a store in a PostgreSQL database.
//
// One server at a time: a session of the server holds an advisory lock of the database's schema, and the table lynx_store has
// one row that says which server that is. Each server that opens the database raises the row's epoch. Each transaction first
// counts itself in that row, if the epoch is still this server's. So a server that lost its session, and whose database was
// opened by another server meanwhile, can write nothing more.
//
// The count also tells how a lost COMMIT ended. If the connection is lost while the answer to COMMIT is awaited, the engine
// connects again and takes the lock, which it gets only when the old session has ended. Then it reads the count.
//
// Calls block while they connect again: Begin and Run make one attempt, which takes some seconds; Commit tries for
// PostgresLimits::doubt. After a failed attempt, others fail at once for a while. Not thread-safe.
#ifndef LYNX_SERVER_STORE_POSTGRES_ENGINE_H_
#define LYNX_SERVER_STORE_POSTGRES_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/engine.h"
#include "server/store/postgres_connection.h"

namespace lynx::server {

struct PostgresLimits {
  std::chrono::milliseconds answer{30'000};  // how long a statement may take before the connection counts as lost
  std::chrono::milliseconds doubt{10'000};   // how long Commit tries to find out what became of a transaction
  std::chrono::milliseconds pause{1'000};    // between attempts to connect again; longer if an attempt takes longer
};

class PostgresEngine : public Engine {
 public:
  // `url`: see CheckPostgresUrl, which has accepted it.
  explicit PostgresEngine(const std::string& url, const PostgresLimits& limits = {});

  absl::Status Open() override;
  const std::string& name() const override { return name_; }
  std::string MendAdvice() const override;
  std::string OpenAdvice(const absl::Status& reason) const override;
  std::vector<std::string> Warnings() const override { return warnings_; }
  absl::StatusOr<int64_t> Schema() override;
  absl::Status Claim() override;
  absl::Status Define(const std::string& statements, int64_t schema) override;
  absl::StatusOr<std::vector<Table>> Tables() override;
  absl::StatusOr<int64_t> Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::Status CheckHeld() override;
  absl::StatusOr<std::unique_ptr<Rows>> Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                            StatementUse use) override;

 private:
  // Connects, and prepares the session: encoding, durable commits, time limits, and the lock.
  absl::Status Connect();
  absl::Status TakeLock();
  // Ends a session of this engine that the database has not noticed to be lost.
  void EndOldSession();
  // FailedPrecondition: names the server that holds the lock. Unavailable: this server's own lost session still holds it.
  absl::Status InUse();
  // Commits a transaction that only counts itself. Everything that was committed before is as durable as this one.
  absl::Status CommitNothing();
  // Connects again if the connection was lost, and makes sure that the store is still this server's.
  absl::Status Reconnect();
  // Calls Reconnect, except soon after it failed: for PostgresLimits::pause, or for as long as the attempt took, so that the
  // caller is not blocked all the time.
  absl::Status BeConnected();
  // The epoch is no longer this server's.
  absl::Status Taken();
  absl::Status NoteSettings();

  const std::string url_;
  const PostgresLimits limits_;
  const std::string name_;
  std::vector<std::string> warnings_;
  std::unique_ptr<PostgresConnection> connection_;  // null, or lost: there is none
  int64_t session_pid_ = 0;                         // identifies the newest session: PostgreSQL's process and its start
  std::string session_started_;
  int64_t epoch_ = 0;    // 0: the store is not claimed yet
  int64_t written_ = 0;  // the number of the newest transaction that is known to be written
  int64_t number_ = 0;   // of the present transaction
  bool in_transaction_ = false;
  absl::Status failure_;  // of the newest attempt to connect again
  std::chrono::steady_clock::time_point retry_at_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_POSTGRES_ENGINE_H_
