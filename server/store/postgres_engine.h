// PostgresEngine: a store in a PostgreSQL database.
//
// One server at a time: the server that opens the database takes the server lease (server_lease.h), ends what is left of the
// session of the server that had it before, and raises the epoch in the one row of the table lynx_store. Each transaction first
// counts itself in that row, if the epoch is still this server's. So a server that lost the lease, however it slept meanwhile,
// can write nothing more.
//
// The session that writes holds an advisory lock of the database's schema, too. Whoever gets the lock knows that the session
// before it has ended. The count tells then how a lost COMMIT ended: if the connection is lost while the answer to COMMIT is
// awaited, the engine connects again, takes the lock, and reads the count. The lock also keeps out older versions of the
// server, which know no lease.
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
#include "server/store/server_lease.h"
#include "server/values/leadership.h"

namespace lynx::server {

// How the engine becomes the one that writes.
struct LeaseClaim {
  ServerIdentity identity;                 // if its id is empty, it gets a new id
  std::shared_ptr<Leadership> leadership;  // says whether this server leads; null: nobody asks
  LeaseTimes times;
  // What Open does if another server has the lease: waits, as long as that server does not renew it, until it is free; or
  // returns at once.
  bool wait = true;
};

// True: the engine was not opened because another server uses the store at present.
bool IsHeldByAnother(const absl::Status& status);

struct PostgresLimits {
  std::chrono::milliseconds answer{30'000};  // how long a statement may take before the connection counts as lost
  std::chrono::milliseconds doubt{10'000};   // how long Commit tries to find out what became of a transaction
  std::chrono::milliseconds pause{1'000};    // pause after a failed attempt to connect, or the length of the attempt, if longer
};

class PostgresEngine : public Engine {
 public:
  // `url`: see CheckPostgresUrl, which has accepted it.
  explicit PostgresEngine(const std::string& url, const PostgresLimits& limits = {}, LeaseClaim claim = {});
  ~PostgresEngine() override;

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
  ServerLease* lease() const override { return lease_.get(); }
  absl::StatusOr<std::unique_ptr<Rows>> Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                            StatementUse use) override;

 private:
  // Connects, and prepares the session: encoding, durable commits, and time limits.
  absl::Status Connect();
  // Takes the lease, or waits for it as LeaseClaim::wait says. Returns without it if the database has no table of it yet; then
  // Claim takes it.
  absl::Status AwaitLease();
  // Tries to take the lease. False: another server has it.
  absl::StatusOr<bool> TryLease();
  // Makes the engine's own tables if they are not there, and takes the lease if this process does not have it yet.
  absl::Status MakeTables();
  // Tries to take the lock. False: another session has it. May be called again by the session that has it.
  absl::StatusOr<bool> TryLock();
  // Takes the lock. Waits at most `patience` for the end of the session that has the lock.
  absl::Status TakeLock(std::chrono::milliseconds patience);
  // Once this server has the lease: ends the session of the server that had it before. That server may be stopped, so that the
  // session would not end by itself.
  void EndEarlierLeader();
  // Ends a session of this engine that the database has not noticed to be lost.
  void EndOldSession();
  // FailedPrecondition, and IsHeldByAnother: names the server that has the lease or the lock. Unavailable: this server's own
  // lost session still holds the lock.
  absl::Status InUse();
  // Commits a transaction that only counts itself. Everything that was committed before is as durable as this one.
  absl::Status CommitNothing();
  // Connects again, and makes sure that the store is still this server's.
  absl::Status Reconnect();
  absl::Status MeetStore();
  // The epoch and a column of the only row of `table`. FailedPrecondition: the epoch is no longer this server's.
  absl::StatusOr<PostgresResult> RowOfThisEpoch(const std::string& table, const std::string& column);
  // Calls Reconnect, except soon after it failed: for PostgresLimits::pause, or for as long as the attempt took, so that the
  // caller is not blocked all the time.
  absl::Status BeConnected();
  // The epoch is no longer this server's.
  absl::Status Taken();
  absl::Status NoteSettings();

  const std::string url_;
  const PostgresLimits limits_;
  const LeaseClaim claim_;
  const std::string name_;
  std::unique_ptr<ServerLease> lease_;  // null: not taken yet
  bool may_end_sessions_ = false;       // true: the lock belongs to a server whose version uses the lease
  std::vector<std::string> warnings_;
  std::unique_ptr<PostgresConnection> connection_;  // null or lost: there is no connection
  int64_t session_pid_ = 0;                         // identifies the newest session: PostgreSQL's process and its start
  std::string session_started_;
  int64_t epoch_ = 0;    // 0: the store is not claimed yet
  int64_t written_ = 0;  // the number of the newest transaction that is known to be written
  int64_t number_ = 0;   // number of the present transaction
  bool in_transaction_ = false;
  absl::Status failure_;  // the failure of the newest attempt to connect again
  std::chrono::steady_clock::time_point retry_at_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_POSTGRES_ENGINE_H_
