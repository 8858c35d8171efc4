// See sqlite.h.
#include "server/store/sqlite.h"

#include <cerrno>
#include <cstring>

#include "common/status.h"

namespace lynx::server {

absl::Status SqliteStatus(sqlite3* db, int code) {
  std::string text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  const int primary = code & 0xFF;
  if (db != nullptr && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)) {
    const int reason = sqlite3_system_errno(db);
    if (reason != 0) text += std::string(" (") + std::strerror(reason) + ")";
    // The disk had no space when SQLite synced a file or created one. SQLite reports SQLITE_FULL only when a write fails, so
    // the operating system's error is checked too.
    if (reason == ENOSPC || reason == EDQUOT) return absl::ResourceExhaustedError(text);
  }
  switch (primary) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return absl::OkStatus();
    case SQLITE_FULL: return absl::ResourceExhaustedError(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return absl::FailedPreconditionError(text);
    case SQLITE_ERROR:  // statements are fixed in the code, so only a wrong schema in the file can cause this
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: return absl::DataLossError(text);
    default: return absl::UnavailableError(text);
  }
}

absl::StatusOr<Statement> Statement::Prepare(sqlite3* db, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return SqliteStatus(db, code);
  return Statement(db, statement, /*kept=*/false);
}

void Statement::Closer::operator()(sqlite3_stmt* statement) const {
  if (!kept) {
    sqlite3_finalize(statement);
    return;
  }
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);  // frees the bound values: a plan may have megabytes
}

absl::StatusOr<Statement> KeptStatements::Get(const std::string& sql) {
  std::unique_ptr<sqlite3_stmt, Finalizer>& kept = statements_[sql];
  if (kept == nullptr) {
    LYNX_ASSIGN_OR_RETURN(Statement made, Statement::Prepare(db_, sql));
    kept.reset(made.statement_.release());
  }
  return Statement(db_, kept.get(), /*kept=*/true);
}

Statement& Statement::Bind(int64_t value) {
  const int code = sqlite3_bind_int64(statement_.get(), ++bound_, value);
  if (bind_error_ == SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::Bind(const std::string& text) {
  const int code = sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (bind_error_ == SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::BindBlob(const std::string& bytes) {
  const int code = sqlite3_bind_blob64(statement_.get(), ++bound_, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  if (bind_error_ == SQLITE_OK) bind_error_ = code;
  return *this;
}

absl::Status Statement::Run() {
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool row, Next());
    if (!row) return absl::OkStatus();
  }
}

absl::StatusOr<bool> Statement::Next() {
  if (bind_error_ != SQLITE_OK) return SqliteStatus(db_, bind_error_);
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  const absl::Status status = SqliteStatus(db_, code);
  sqlite3_reset(statement_.get());
  bound_ = 0;
  if (!status.ok()) return status;
  return false;
}

std::string Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), static_cast<size_t>(size));
}

absl::Status Execute(sqlite3* db, const std::string& sql) {
  return SqliteStatus(db, sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<std::string> QueryText(sqlite3* db, const std::string& sql) {
  LYNX_ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db, sql));
  LYNX_ASSIGN_OR_RETURN(const bool row, statement.Next());
  if (!row) return absl::NotFoundError("no row");
  return statement.Text(0);
}

}  // namespace lynx::server
