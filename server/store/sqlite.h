// A thin C++ layer over SQLite's C interface, with owning handles and statuses. Not thread-safe.
#ifndef LYNX_SERVER_STORE_SQLITE_H_
#define LYNX_SERVER_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <map>
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

// One prepared statement, to be run once or many times: call Bind for its parameters in order, then Run or Next.
class Statement {
 public:
  static absl::StatusOr<Statement> Prepare(sqlite3* db, const std::string& sql);

  Statement& Bind(int64_t value);
  Statement& Bind(const std::string& text);
  Statement& BindBlob(const std::string& bytes);
  // Runs the statement to its end. Afterwards new values can be bound.
  absl::Status Run();
  // True: there is a row to read. False: there are no more rows.
  absl::StatusOr<bool> Next();

  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string Text(int column) const;

 private:
  friend class KeptStatements;
  struct Closer {
    bool kept = false;  // KeptStatements keeps the statement for reuse
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(sqlite3* db, sqlite3_stmt* statement, bool kept) : db_(db), statement_(statement, {kept}) {}

  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, Closer> statement_;
  int bound_ = 0;
  int bind_error_ = SQLITE_OK;
};

// Statements that are run many times. Each is prepared once, because preparing a statement takes longer than running it. Must
// not outlive the connection.
class KeptStatements {
 public:
  explicit KeptStatements(sqlite3* db) : db_(db) {}
  // Returns the statement with this text, which is prepared at the first call. Must not be called with the same text again
  // until the returned statement is destroyed.
  absl::StatusOr<Statement> Get(const std::string& sql);

 private:
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  sqlite3* db_;
  std::map<std::string, std::unique_ptr<sqlite3_stmt, Finalizer>> statements_;
};

// Runs statements that return no rows, separated by semicolons.
absl::Status Execute(sqlite3* db, const std::string& sql);
// Returns the first column of the first row.
absl::StatusOr<std::string> QueryText(sqlite3* db, const std::string& sql);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_SQLITE_H_
