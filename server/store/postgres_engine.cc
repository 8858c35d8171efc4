// See postgres_engine.h.
#include "server/store/postgres_engine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long this server waits for the end of an old session that has the lock. The session is that of a server that was killed,
// or an earlier session of this server that was lost.
constexpr milliseconds kPatience{3'000}, kLockPoll{50}, kDoubtPoll{200};

// The two numbers of the lock: the letters "LYNX", and a number that differs between the schemas of a database.
constexpr char kLockNumbers[] = "1280921176, hashtext(current_schema())";
// The row of the lock in pg_locks. An advisory lock with two numbers has them in classid and objid, and objsubid 2.
constexpr char kLockRow[] =
    "locktype='advisory' AND granted AND database=(SELECT oid FROM pg_database WHERE datname=current_database()) AND "
    "classid::bigint=1280921176 AND objid::bigint=(hashtext(current_schema())::bigint & 4294967295) AND objsubid=2";

// The engine's own table, which has exactly one row.
constexpr char kOwnTable[] =
    "CREATE TABLE IF NOT EXISTS lynx_store(one BIGINT PRIMARY KEY CHECK(one = 1), schema_version BIGINT NOT NULL, "
    "transactions BIGINT NOT NULL, epoch BIGINT NOT NULL, holder_host TEXT NOT NULL, holder_pid BIGINT NOT NULL, "
    "holder_since_ns BIGINT NOT NULL)";
// Values that all servers of the store share, such as the keys of the cluster.
constexpr char kSharedTable[] = "CREATE TABLE IF NOT EXISTS lynx_shared(name TEXT PRIMARY KEY, value BYTEA NOT NULL)";
constexpr char kOwnRow[] = "INSERT INTO lynx_store VALUES(1, 0, 0, 0, '', 0, 0) ON CONFLICT DO NOTHING";

Parameter Integer(int64_t value) { return {.kind = ColumnKind::kInteger, .integer = value}; }
Parameter OfText(const std::string& text) { return {.kind = ColumnKind::kText, .bytes = text}; }

constexpr char kHeldPayload[] = "lynx/held-by-another";

LeaseClaim Completed(LeaseClaim claim) {
  if (claim.identity.id.empty()) claim.identity = NewIdentity("");
  if (claim.leadership == nullptr) claim.leadership = std::make_shared<Leadership>();
  return claim;
}

class PostgresRows : public Rows {
 public:
  explicit PostgresRows(PostgresResult result) : result_(std::move(result)) {}
  absl::StatusOr<bool> Next() override { return ++row_ < result_.rows(); }
  int64_t Int(int column) const override { return result_.Int(row_, column); }
  std::string Text(int column) const override { return result_.Text(row_, column); }

 private:
  PostgresResult result_;
  int row_ = -1;
};

}  // namespace

bool IsHeldByAnother(const absl::Status& status) { return status.GetPayload(kHeldPayload).has_value(); }

PostgresEngine::PostgresEngine(const std::string& url, const PostgresLimits& limits, LeaseClaim claim)
    : url_(url), limits_(limits), claim_(Completed(std::move(claim))), name_("the database " + WithoutPassword(url)) {}

PostgresEngine::~PostgresEngine() {
  connection_.reset();  // the session, which has the lock, ends before the lease is given back
}

std::string PostgresEngine::MendAdvice() const {
  return "restore it from a backup, or name another, empty database with --store; the server then knows none of its jobs";
}

std::string PostgresEngine::OpenAdvice(const absl::Status& reason) const {
  return reason.code() == absl::StatusCode::kResourceExhausted
             ? "make space on the disk of PostgreSQL and start again"
             : "check --store, that PostgreSQL runs there, and that it lets this user in and make tables";
}

absl::Status PostgresEngine::Open() {
  LYNX_RETURN_IF_ERROR(Connect());
  LYNX_RETURN_IF_ERROR(AwaitLease());
  LYNX_RETURN_IF_ERROR(TakeLock(lease_ != nullptr || claim_.wait ? kPatience : milliseconds(0)));
  return NoteSettings();
}

absl::Status PostgresEngine::Connect() {
  connection_.reset();
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<PostgresConnection> connection,
                        PostgresConnection::Connect(url_, {.answer = limits_.answer}));
  const std::string encoding = connection->Setting("server_encoding");
  if (encoding != "UTF8") {
    return absl::FailedPreconditionError(absl::StrCat(name_, " has the encoding ", encoding,
                                                      ": make one with UTF8 (createdb --template template0 --encoding UTF8)"));
  }
  LYNX_RETURN_IF_ERROR(connection->MakeCommitsDurable());
  // The lock ends with the session. So the session must not end while it is idle. But it must end soon after the server's
  // machine has failed, because another server waits for the lock.
  LYNX_RETURN_IF_ERROR(
      connection
          ->Run("SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN (VALUES "
                "('idle_session_timeout', '0'), ('idle_in_transaction_session_timeout', '0'), "
                "('statement_timeout', '0'), ('lock_timeout', '0'), ('tcp_keepalives_idle', '10'), "
                "('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS v(name, value) USING (name)")
          .status());
  LYNX_ASSIGN_OR_RETURN(const PostgresResult session, connection->Run("SELECT current_schema() IS NULL, pg_is_in_recovery()"));
  if (session.Int(0, 0) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name_, " has no schema for tables: make the first schema of the search_path"));
  }
  if (session.Int(0, 1) != 0) {
    return absl::UnavailableError("it is a standby, which cannot be written");
  }
  connection_ = std::move(connection);
  return absl::OkStatus();
}

absl::StatusOr<bool> PostgresEngine::TryLease() {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<PostgresConnection> connection, ServerLease::ConnectFor(url_));
  const Nanos before = BootTime();
  LYNX_ASSIGN_OR_RETURN(const int64_t epoch, TakeLease(*connection, claim_.identity, claim_.times));
  if (epoch == 0) return false;
  lease_ = std::make_unique<ServerLease>(url_, std::move(connection), claim_.identity, claim_.times, epoch, before,
                                         claim_.leadership);
  return true;
}

absl::Status PostgresEngine::AwaitLease() {
  std::optional<int64_t> renewals;  // the lease's number of renewals when this function first read it
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const std::optional<LeaseRow> row, ReadLease(*connection_));
    if (!row.has_value()) return absl::OkStatus();
    if (row->left > claim_.times.life) LYNX_RETURN_IF_ERROR(CapLease(*connection_, claim_.times));
    if (row->left <= milliseconds(0)) {
      // A server of an older version has only the lock, and no lease. If this server took the lease first, the lease would seem
      // to be newer than that server. So this server takes the lock first.
      if (row->older_server) {
        LYNX_ASSIGN_OR_RETURN(const bool locked, TryLock());
        if (!locked) return InUse();
      }
      LYNX_ASSIGN_OR_RETURN(const bool taken, TryLease());
      may_end_sessions_ = !row->older_server;
      if (taken) return absl::OkStatus();
    }
    if (!renewals.has_value()) renewals = row->renewals;
    if (!claim_.wait || row->renewals != *renewals) return InUse();
    std::this_thread::sleep_for(kLockPoll);
  }
}

absl::StatusOr<bool> PostgresEngine::TryLock() {
  LYNX_ASSIGN_OR_RETURN(const PostgresResult tried,
                        connection_->Run(absl::StrCat("SELECT pg_try_advisory_lock(", kLockNumbers, ")")));
  return tried.Int(0, 0) != 0;
}

absl::Status PostgresEngine::TakeLock(milliseconds patience) {
  const auto end = steady_clock::now() + patience;
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool locked, TryLock());
    if (locked) break;
    EndOldSession();
    EndEarlierLeader();
    if (steady_clock::now() > end) return InUse();
    std::this_thread::sleep_for(kLockPoll);
  }
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult session,
      connection_->Run("SELECT pid::bigint, backend_start::text FROM pg_stat_activity WHERE pid=pg_backend_pid()"));
  session_pid_ = session.rows() == 1 ? session.Int(0, 0) : 0;
  session_started_ = session.rows() == 1 ? session.Text(0, 1) : "";
  return absl::OkStatus();
}

void PostgresEngine::EndEarlierLeader() {
  if (lease_ == nullptr || !may_end_sessions_ || epoch_ != 0) return;
  connection_
      ->Run(absl::StrCat("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE ", kLockRow, " AND pid<>pg_backend_pid()"))
      .status()
      .IgnoreError();
}

void PostgresEngine::EndOldSession() {
  if (session_pid_ == 0) return;
  // PostgreSQL lets a user end sessions of the same user. If this fails, the lock stays taken, and a later step reports this.
  connection_
      ->Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid=? AND backend_start::text=?",
            {Integer(session_pid_), OfText(session_started_)})
      .status()
      .IgnoreError();
}

absl::Status PostgresEngine::InUse() {
  // If there is no valid lease, a server of an older version, which knows no leases, has the lock.
  const absl::StatusOr<std::optional<LeaseRow>> lease = ReadLease(*connection_);
  const bool leased = lease_ == nullptr && lease.ok() && lease->has_value() && (*lease)->left > milliseconds(0);
  const absl::StatusOr<PostgresResult> row =
      connection_->Run(leased ? "SELECT host, process, since_ns, address FROM lynx_lease"
                              : "SELECT holder_host, holder_pid, holder_since_ns, '' FROM lynx_store WHERE holder_pid > 0");
  std::string holder;
  if (row.ok() && row->rows() == 1) {
    holder =
        absl::StrCat(" (process ", row->Int(0, 1), " on host ", row->Text(0, 0), ", since ",
                     absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(row->Int(0, 2)), absl::UTCTimeZone()), ")");
  }
  // The lock may also belong to a session whose connection is lost, which PostgreSQL has not noticed yet.
  const absl::StatusOr<PostgresResult> session =
      connection_->Run(absl::StrCat("SELECT pid::bigint FROM pg_locks WHERE ", kLockRow));
  if (session_pid_ != 0 && session.ok() && session->rows() == 1 && session->Int(0, 0) == session_pid_) {
    return absl::UnavailableError(
        absl::StrCat("PostgreSQL has not ended this server's lost session ", session_pid_, " yet, which has the lock"));
  }
  if (session.ok() && session->rows() == 1) absl::StrAppend(&holder, " by PostgreSQL's session ", session->Int(0, 0));
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      name_, " is in use by another lynx-server", holder, ": stop that one, or give this one another --store; if that process ",
      leased ? "has ended, wait some seconds" : "has ended, end its session with pg_terminate_backend"));
  status.SetPayload(kHeldPayload, absl::Cord("1"));
  return status;
}

absl::Status PostgresEngine::NoteSettings() {
  for (const char* setting : {"fsync", "full_page_writes"}) {
    LYNX_ASSIGN_OR_RETURN(const PostgresResult value, connection_->Run("SELECT current_setting(?)", {OfText(setting)}));
    if (value.Text(0, 0) != "off") continue;
    warnings_.push_back(absl::StrCat(name_, " has ", setting, "=off: when its machine fails, acknowledged jobs may be lost"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PostgresEngine::Schema() {
  LYNX_ASSIGN_OR_RETURN(const PostgresResult tables,
                        connection_->Run("SELECT count(*), count(*) FILTER (WHERE tablename='lynx_store') FROM pg_tables WHERE "
                                         "schemaname=current_schema()"));
  if (tables.Int(0, 0) == 0) return 0;
  if (tables.Int(0, 1) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name_, " has tables that are not lynx-server's: name an empty database with --store"));
  }
  LYNX_ASSIGN_OR_RETURN(const PostgresResult row, connection_->Run("SELECT schema_version FROM lynx_store"));
  if (row.rows() != 1) return absl::DataLossError("the table lynx_store has not one row");
  return row.Int(0, 0);
}

// The transaction that makes the tables of an empty database also takes the lease. Otherwise another server that starts now
// could take the free lease and end the session of this server.
absl::Status PostgresEngine::MakeTables() {
  std::unique_ptr<PostgresConnection> connection;  // the connection of the lease
  if (lease_ == nullptr) {
    LYNX_ASSIGN_OR_RETURN(connection, ServerLease::ConnectFor(url_));
  }
  const Nanos before = BootTime();
  LYNX_RETURN_IF_ERROR(
      connection_->Execute(absl::StrCat("BEGIN;", kOwnTable, ";", kOwnRow, ";", LeaseTables(), ";", kSharedTable)));
  if (lease_ != nullptr) return connection_->Execute("COMMIT");
  LYNX_ASSIGN_OR_RETURN(const int64_t epoch, TakeLease(*connection_, claim_.identity, claim_.times));
  LYNX_RETURN_IF_ERROR(connection_->Execute("COMMIT"));
  if (epoch == 0) return InUse();
  lease_ = std::make_unique<ServerLease>(url_, std::move(connection), claim_.identity, claim_.times, epoch, before,
                                         claim_.leadership);
  return absl::OkStatus();
}

absl::Status PostgresEngine::Claim() {
  LYNX_RETURN_IF_ERROR(MakeTables());
  static const RealClock clock;
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult row,
      connection_->Run("UPDATE lynx_store SET epoch=?, holder_host=?, holder_pid=?, holder_since_ns=? WHERE epoch<? "
                       "RETURNING transactions",
                       {Integer(lease_->epoch()), OfText(claim_.identity.host), Integer(claim_.identity.process),
                        Integer(clock.Wall().value), Integer(lease_->epoch())}));
  if (row.rows() == 0) return InUse();  // this process was stopped for so long that another server took the lease
  epoch_ = lease_->epoch();
  written_ = row.Int(0, 0);
  return absl::OkStatus();
}

absl::Status PostgresEngine::Define(const std::string& statements, int64_t schema) {
  // Text must be compared byte by byte, as in SQLite.
  const std::string translated = absl::StrReplaceAll(statements, {{" INTEGER PRIMARY KEY AUTOINCREMENT", " BIGINT PRIMARY KEY"},
                                                                  {" INTEGER", " BIGINT"},
                                                                  {" TEXT", " TEXT COLLATE \"C\""},
                                                                  {" BLOB", " BYTEA"},
                                                                  {" WITHOUT ROWID", ""},
                                                                  {"x''", "''"}});
  LYNX_RETURN_IF_ERROR(connection_->Execute(translated));
  return connection_->Run("UPDATE lynx_store SET schema_version=?", {Integer(schema)}).status();
}

absl::StatusOr<std::vector<Table>> PostgresEngine::Tables() {
  LYNX_ASSIGN_OR_RETURN(
      const std::unique_ptr<Rows> row,
      Run("SELECT t.relname::text, a.attname::text, format_type(a.atttypid, NULL), coalesce(a.attnum=ANY(k.indkey), false) "
          "FROM "
          "pg_class t JOIN pg_attribute a ON a.attrelid=t.oid AND a.attnum>0 AND NOT a.attisdropped LEFT JOIN pg_index k ON "
          "k.indrelid=t.oid AND k.indisprimary WHERE t.relnamespace=current_schema()::regnamespace AND t.relkind='r' AND "
          "t.relname NOT IN ('lynx_store', 'lynx_lease', 'lynx_servers', 'lynx_shared') ORDER BY t.relname, a.attnum",
          {}, StatementUse::kOnce));
  std::vector<Table> tables;
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, row->Next());
    if (!more) return tables;
    if (tables.empty() || tables.back().name != row->Text(0)) tables.push_back({.name = row->Text(0)});
    const std::string type = row->Text(2);
    const ColumnKind kind = type == "bigint" ? ColumnKind::kInteger : type == "bytea" ? ColumnKind::kBlob : ColumnKind::kText;
    tables.back().columns.push_back({.name = row->Text(1), .kind = kind, .in_key = row->Int(3) != 0});
  }
}

absl::Status PostgresEngine::Taken() {
  std::string by;
  if (connection_ != nullptr) {
    const absl::StatusOr<PostgresResult> row = connection_->Run("SELECT host, process, epoch FROM lynx_lease");
    if (row.ok() && row->rows() == 1 && row->Int(0, 2) > epoch_) {
      by = absl::StrCat(" (process ", row->Int(0, 1), " on host ", row->Text(0, 0), ")");
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("another lynx-server", by, " has taken ", name_,
                   " since this one last reached it: this one can write nothing more, and stands by when it starts again"));
}

absl::StatusOr<PostgresResult> PostgresEngine::RowOfThisEpoch(const std::string& table, const std::string& column) {
  absl::StatusOr<PostgresResult> row = connection_->Run(absl::StrCat("SELECT epoch, ", column, " FROM ", table));
  if (row.ok() && row->rows() != 1) return absl::DataLossError(absl::StrCat("the table ", table, " has not one row"));
  if (row.ok() && row->Int(0, 0) != epoch_) return Taken();
  return row;
}

absl::Status PostgresEngine::MeetStore() {
  // If this server has lost the lease, it must not take the lock from the server that has the lease now.
  LYNX_RETURN_IF_ERROR(RowOfThisEpoch("lynx_lease", "renewals").status());
  LYNX_RETURN_IF_ERROR(TakeLock(kPatience));
  LYNX_ASSIGN_OR_RETURN(const PostgresResult row, RowOfThisEpoch("lynx_store", "transactions"));
  if (row.Int(0, 1) < written_) {
    return absl::DataLossError(absl::StrCat("it has ", row.Int(0, 1), " transactions, and has acknowledged ", written_));
  }
  written_ = row.Int(0, 1);
  return absl::OkStatus();
}

absl::Status PostgresEngine::Reconnect() {
  in_transaction_ = false;
  LYNX_RETURN_IF_ERROR(Connect());
  absl::Status status = MeetStore();
  if (!status.ok()) connection_.reset();
  return status;
}

absl::Status PostgresEngine::BeConnected() {
  if (connection_ != nullptr && !connection_->is_lost()) return absl::OkStatus();
  if (steady_clock::now() < retry_at_) return failure_;
  const auto begin = steady_clock::now();
  failure_ = Reconnect();
  if (failure_.ok()) return failure_;
  const auto end = steady_clock::now();
  if (failure_.code() != absl::StatusCode::kFailedPrecondition) {
    retry_at_ = end + std::max<steady_clock::duration>(limits_.pause, end - begin);
  }
  return failure_;
}

absl::StatusOr<int64_t> PostgresEngine::Begin() {
  // If the connection was lost since the last statement, this statement is the first to notice it. Nothing has been written, so
  // it is tried again.
  for (int attempt = 1;; ++attempt) {
    LYNX_RETURN_IF_ERROR(BeConnected());
    absl::Status status = connection_->Execute("BEGIN");
    if (status.ok()) {
      in_transaction_ = true;
      const absl::StatusOr<PostgresResult> row =
          connection_->Run("UPDATE lynx_store SET transactions=transactions+1 WHERE epoch=? RETURNING transactions",
                           {Integer(epoch_)}, StatementUse::kKept);
      status = row.status();
      if (status.ok() && row->rows() == 0) status = Taken();
      if (status.ok()) return number_ = row->Int(0, 0);
    }
    if (!connection_->is_lost() || attempt == 2) return status;
  }
}

absl::Status PostgresEngine::Commit() {
  in_transaction_ = false;
  const absl::StatusOr<PostgresResult> done = connection_->Run("COMMIT");
  if (done.ok()) {
    // If a statement of the transaction has failed, COMMIT rolls the transaction back and reports ROLLBACK.
    if (done->command() != "COMMIT") return absl::UnavailableError("the transaction was rolled back");
    written_ = number_;
    return absl::OkStatus();
  }
  if (!connection_->is_lost()) return done.status();
  const auto end = steady_clock::now() + limits_.doubt;
  while (true) {
    absl::Status again = Reconnect();
    if (again.ok() && written_ < number_) return done.status();
    // The transaction is written. If PostgreSQL has a synchronous standby, it must have the transaction too: an empty commit
    // waits for it.
    if (again.ok()) again = CommitNothing();
    if (again.ok()) return again;
    if (again.code() == absl::StatusCode::kFailedPrecondition || again.code() == absl::StatusCode::kDataLoss) return again;
    if (steady_clock::now() > end) {
      failure_ = again;
      retry_at_ = steady_clock::now() + limits_.pause;
      return absl::AbortedError(
          absl::StrCat("the connection was lost during a commit, and it is not known yet whether that was written, because it "
                       "cannot be made again: ",
                       std::string(again.message())));
    }
    std::this_thread::sleep_for(kDoubtPoll);
  }
}

absl::Status PostgresEngine::CommitNothing() {
  LYNX_RETURN_IF_ERROR(connection_->Execute("BEGIN"));
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult row,
      connection_->Run("UPDATE lynx_store SET transactions=transactions+1 WHERE epoch=? RETURNING transactions",
                       {Integer(epoch_)}));
  if (row.rows() == 0) return Taken();
  LYNX_RETURN_IF_ERROR(connection_->Execute("COMMIT"));
  written_ = row.Int(0, 0);
  return absl::OkStatus();
}

absl::Status PostgresEngine::CheckHeld() {
  if (lease_ != nullptr && lease_->lost()) return Taken();
  return Run("SELECT 1", {}, StatementUse::kKept).status();
}

void PostgresEngine::Rollback() {
  if (!in_transaction_) return;
  in_transaction_ = false;
  if (connection_ == nullptr || connection_->is_lost()) return;  // PostgreSQL rolls back when the session ends
  if (!connection_->Execute("ROLLBACK").ok()) connection_.reset();
}

absl::StatusOr<std::unique_ptr<Rows>> PostgresEngine::Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                                          StatementUse use) {
  for (int attempt = 1;; ++attempt) {
    if (!in_transaction_) LYNX_RETURN_IF_ERROR(BeConnected());
    if (connection_ == nullptr) return absl::UnavailableError("the connection was lost");
    absl::StatusOr<PostgresResult> result = connection_->Run(sql, parameters, use);
    if (result.ok()) return std::make_unique<PostgresRows>(*std::move(result));
    if (in_transaction_ || !connection_->is_lost() || attempt == 2) return result.status();
  }
}

}  // namespace lynx::server
