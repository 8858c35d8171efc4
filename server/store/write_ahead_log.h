// What SQLite does not say of its write-ahead log: that it was damaged. SQLite takes a log up to the first frame whose checksum
// is wrong and overlooks the rest, as of a write that was interrupted. But it begins a transaction only when the one before is
// durable, so an interrupted write leaves at most one commit behind that place; with more, what was durable is lost.
// (https://www.sqlite.org/fileformat2.html, section 4.)
//
// What can be told so: at most the last transaction before the end may be damaged without being noticed, and damage to the
// log's own header is not. Not thread-safe.
#ifndef LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_
#define LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_

#include <sqlite3.h>

#include "absl/status/statusor.h"

namespace lynx {

// True: transactions that were completed are behind a damaged place. Of an open database whose log SQLite has read and not yet
// written to. Unavailable: the log cannot be read.
absl::StatusOr<bool> LogIsDamaged(sqlite3* db);

// Copies the log into the database and empties it, so that nothing of writes that failed or were interrupted is left in it,
// which LogIsDamaged would take for more than it is. False: it could not, such as on a full disk; then the log is as it was.
bool EmptyLog(sqlite3* db);

}  // namespace lynx

#endif  // LYNX_SERVER_STORE_WRITE_AHEAD_LOG_H_
