// Detects damage to SQLite's write-ahead log that SQLite itself does not report. SQLite reads the log up to the first frame
// with a wrong checksum and ignores the rest, as if the write had been interrupted there. But SQLite begins a transaction only
// when the one before it is durable, so after an interrupted write at most one commit follows the wrong frame. If more commits
// follow it, durable data are lost. (https://www.sqlite.org/fileformat2.html, section 4.)
//
// Limits: damage to the last transaction of the log, or to the log's header, is not detected. Not thread-safe.
#ifndef LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_
#define LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_

#include <sqlite3.h>

#include "absl/status/statusor.h"

namespace lynx::server {

// True if two or more commits follow a damaged frame. Call it for an open database whose log SQLite has read but not yet
// written. Unavailable: the log cannot be read.
absl::StatusOr<bool> LogIsDamaged(sqlite3* db);

// Copies the log into the database and empties it. This also removes the remains of failed or interrupted writes, which
// LogIsDamaged would mistake for damage. Returns false if it failed, such as on a full disk; then the log is unchanged.
bool EmptyLog(sqlite3* db);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_
