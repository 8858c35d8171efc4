// See sqlite_engine.h.
#include "server/store/sqlite_engine.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "server/store/write_ahead_log.h"

namespace lynx::server {
namespace {

constexpr int64_t kApplicationId = 0x4C594E58;  // "LYNX"

absl::Status DamagedFile(const SqliteEngine& engine, const std::string& what) {
  return absl::DataLossError(absl::StrCat(engine.name(), " is damaged (", what, "): ", engine.MendAdvice()));
}

// The rows of a statement. At the end, a statement that is kept for later is reset, and any other statement is destroyed.
class SqliteRows : public Rows {
 public:
  SqliteRows(sqlite3* db, sqlite3_stmt* statement, StatementUse use) : db_(db), statement_(statement), use_(use) {}
  ~SqliteRows() override {
    if (use_ == StatementUse::kOnce) {
      sqlite3_finalize(statement_);
      return;
    }
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);  // frees the bound values: a plan may have megabytes
  }

  absl::StatusOr<bool> Next() override {
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    const absl::Status status = SqliteStatus(db_, code);
    sqlite3_reset(statement_);
    if (!status.ok()) return status;
    return false;
  }
  int64_t Int(int column) const override { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const override {
    const void* bytes = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), static_cast<size_t>(size));
  }

  absl::Status Bind(const std::vector<Parameter>& parameters) {
    int place = 0;
    for (const Parameter& parameter : parameters) {
      const std::string& bytes = parameter.bytes;
      int code = SQLITE_OK;
      switch (++place, parameter.kind) {
        case ColumnKind::kInteger: code = sqlite3_bind_int64(statement_, place, parameter.integer); break;
        case ColumnKind::kText:
          code = sqlite3_bind_text64(statement_, place, bytes.data(), bytes.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
          break;
        case ColumnKind::kBlob:
          code = sqlite3_bind_blob64(statement_, place, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
          break;
      }
      if (code != SQLITE_OK) return SqliteStatus(db_, code);
    }
    return absl::OkStatus();
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_;
  StatementUse use_;
};

}  // namespace

std::string SqliteEngine::MendAdvice() const {
  return "restore it from a backup, or move it and its -wal file aside and start again; the server then knows none of its jobs";
}

std::string SqliteEngine::OpenAdvice(const absl::Status& reason) const {
  return reason.code() == absl::StatusCode::kResourceExhausted ? "make space on its disk and start again"
                                                               : "check --data-dir, its permissions and its disk";
}

absl::Status SqliteEngine::Open() {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path_.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(raw);
  LYNX_RETURN_IF_ERROR(SqliteStatus(raw, code));
  sqlite3_extended_result_codes(raw, 1);
  // Half a second is enough for an ending server to release its lock. If a server keeps running, waiting longer would not help.
  sqlite3_busy_timeout(db_.get(), 500);
  LYNX_RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA locking_mode=EXCLUSIVE"));
  absl::Status locked = Execute(db_.get(), "PRAGMA journal_mode=WAL; BEGIN IMMEDIATE; COMMIT");
  if (locked.code() == absl::StatusCode::kFailedPrecondition) {
    return absl::FailedPreconditionError(absl::StrCat(
        name_, " is in use by another lynx-server: stop that one, or give this one another --data-dir or --store"));
  }
  LYNX_RETURN_IF_ERROR(locked);
  LYNX_RETURN_IF_ERROR(Execute(db_.get(), "PRAGMA synchronous=FULL"));
  LYNX_RETURN_IF_ERROR(CheckIntegrity());
  LYNX_ASSIGN_OR_RETURN(const bool log_damaged, LogIsDamaged(db_.get()));
  if (log_damaged) {
    return DamagedFile(*this, absl::StrCat("what was written to its log, ", path_, "-wal, is no longer what it was"));
  }
  EmptyLog(db_.get());  // if this fails, a later start empties the log, or SQLite does when it next checkpoints the log
  return absl::OkStatus();
}

absl::Status SqliteEngine::CheckIntegrity() {
  // The faster quick_check would not notice rows that are missing from an index. Jobs are read in the order of an index.
  LYNX_ASSIGN_OR_RETURN(const std::string result, QueryText(db_.get(), "PRAGMA integrity_check(1)"));
  return result == "ok" ? absl::OkStatus() : DamagedFile(*this, result);
}

absl::StatusOr<int64_t> SqliteEngine::Schema() {
  LYNX_ASSIGN_OR_RETURN(const std::string version, QueryText(db_.get(), "PRAGMA user_version"));
  LYNX_ASSIGN_OR_RETURN(const std::string application, QueryText(db_.get(), "PRAGMA application_id"));
  LYNX_ASSIGN_OR_RETURN(const std::string tables, QueryText(db_.get(), "SELECT count(*) FROM sqlite_master"));
  int64_t schema = 0;
  const bool is_number = absl::SimpleAtoi(version, &schema);
  if (tables == "0" && schema == 0) return 0;
  if (application != absl::StrCat(kApplicationId)) {
    return absl::FailedPreconditionError(absl::StrCat(name_, " is not one of lynx-server's: give another --data-dir"));
  }
  // No release has written tables with version 0. INT64_MAX is above every version that a server knows, so the file is refused.
  return is_number && schema >= 1 ? schema : INT64_MAX;
}

absl::Status SqliteEngine::Define(const std::string& statements, int64_t schema) {
  return Execute(db_.get(),
                 absl::StrCat("PRAGMA application_id=", kApplicationId, ";", statements, ";PRAGMA user_version=", schema));
}

absl::StatusOr<std::vector<Table>> SqliteEngine::Tables() {
  std::vector<Table> tables;
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Rows> row, Run("SELECT t.name, c.name, c.type, c.pk FROM sqlite_master AS t, "
                                                             "pragma_table_info(t.name) AS c WHERE t.type='table' AND "
                                                             "t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid",
                                                             {}, StatementUse::kOnce));
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, row->Next());
    if (!more) return tables;
    if (tables.empty() || tables.back().name != row->Text(0)) tables.push_back({.name = row->Text(0)});
    const std::string type = row->Text(2);
    const ColumnKind kind = type == "INTEGER" ? ColumnKind::kInteger : type == "BLOB" ? ColumnKind::kBlob : ColumnKind::kText;
    tables.back().columns.push_back({.name = row->Text(1), .kind = kind, .in_key = row->Int(3) != 0});
  }
}

absl::StatusOr<int64_t> SqliteEngine::Begin() {
  if (log_has_remains_) log_has_remains_ = !EmptyLog(db_.get());
  LYNX_RETURN_IF_ERROR(Execute(db_.get(), "BEGIN IMMEDIATE"));
  return written_ + 1;
}

absl::Status SqliteEngine::Commit() {
  const absl::Status status = Execute(db_.get(), "COMMIT");
  if (status.ok()) ++written_;
  return status;
}

void SqliteEngine::Rollback() {
  log_has_remains_ = true;
  if (sqlite3_get_autocommit(db_.get()) != 0) return;
  // The rollback fails only if SQLite has already rolled back by itself.
  const absl::Status undone = Execute(db_.get(), "ROLLBACK");
  LYNX_CHECK(undone.ok() || sqlite3_get_autocommit(db_.get()) != 0);
}

absl::StatusOr<SqliteEngine::StatementHandle> SqliteEngine::Compile(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return SqliteStatus(db_.get(), code);
  return StatementHandle(statement);
}

absl::StatusOr<std::unique_ptr<Rows>> SqliteEngine::Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                                        StatementUse use) {
  sqlite3_stmt* statement = nullptr;
  if (use == StatementUse::kOnce) {
    LYNX_ASSIGN_OR_RETURN(StatementHandle compiled, Compile(sql));
    statement = compiled.release();
  } else {
    StatementHandle& kept = kept_[sql];
    if (kept == nullptr) {
      LYNX_ASSIGN_OR_RETURN(kept, Compile(sql));
    }
    statement = kept.get();
  }
  auto rows = std::make_unique<SqliteRows>(db_.get(), statement, use);
  LYNX_RETURN_IF_ERROR(rows->Bind(parameters));
  return rows;
}

}  // namespace lynx::server
