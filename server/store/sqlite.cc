// See sqlite.h.
#include "server/store/sqlite.h"

#include <cerrno>
#include <cstring>

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

absl::Status Execute(sqlite3* db, const std::string& sql) {
  return SqliteStatus(db, sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr));
}

absl::StatusOr<std::string> QueryText(sqlite3* db, const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  const int prepared = sqlite3_prepare_v2(db, sql.c_str(), static_cast<int>(sql.size()), &raw, nullptr);
  if (prepared != SQLITE_OK) return SqliteStatus(db, prepared);
  const int code = sqlite3_step(raw);
  const absl::Status status = SqliteStatus(db, code);
  absl::StatusOr<std::string> text = status.ok() ? absl::NotFoundError("no row") : status;
  if (code == SQLITE_ROW) {
    const void* bytes = sqlite3_column_blob(raw, 0);
    text = bytes == nullptr ? std::string()
                            : std::string(static_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(raw, 0)));
  }
  sqlite3_finalize(raw);
  return text;
}

}  // namespace lynx::server
