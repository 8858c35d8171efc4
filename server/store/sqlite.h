// A thin C++ layer over SQLite's C interface, with an owning handle and statuses. Not thread-safe.
#ifndef LYNX_SERVER_STORE_SQLITE_H_
#define LYNX_SERVER_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx::server {

struct SqliteCloser {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using SqliteHandle = std::unique_ptr<sqlite3, SqliteCloser>;

// ResourceExhausted: the disk is full. FailedPrecondition: another process uses the database. DataLoss: the file is not a
// database, is damaged, or lacks tables that a statement names. Unavailable: all other errors. The text is SQLite's.
absl::Status SqliteStatus(sqlite3* db, int code);

// Runs statements that return no rows, separated by semicolons.
absl::Status Execute(sqlite3* db, const std::string& sql);
// Returns the first column of the first row.
absl::StatusOr<std::string> QueryText(sqlite3* db, const std::string& sql);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_SQLITE_H_
