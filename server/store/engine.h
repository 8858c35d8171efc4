// Engine: runs the statements of a Store on one database. The Store decides what is written; an engine knows how its database
// is opened, locked, checked, and asked. There are two: SQLite (sqlite_engine.h) and PostgreSQL (postgres_engine.h).
//
// Statements are written in the part of SQL that both take: `?` for parameters, INSERT ... ON CONFLICT, and in definitions of
// tables the types INTEGER (64 bits), TEXT and BLOB. An engine translates what its database writes otherwise.
//
// All operations return the same codes. ResourceExhausted: the disk is full. DataLoss: the database is damaged, or lacks tables
// that a statement names. FailedPrecondition: another server uses the database. Unavailable: all other errors, such as a lost
// connection. The text is the database's own; the Store adds the name of the database. Not thread-safe.
#ifndef LYNX_SERVER_STORE_ENGINE_H_
#define LYNX_SERVER_STORE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx::server {

class ServerLease;

enum class ColumnKind { kInteger, kText, kBlob };

struct Column {
  std::string name;
  ColumnKind kind = ColumnKind::kText;
  bool in_key = false;  // the column is a part of the primary key
  bool operator==(const Column&) const = default;
};

struct Table {
  std::string name;
  std::vector<Column> columns;
};

// The value of a parameter. `integer` counts for kInteger, `bytes` for the others.
struct Parameter {
  ColumnKind kind = ColumnKind::kInteger;
  int64_t integer = 0;
  std::string bytes;
};

// The rows that a statement returns. Must not outlive the engine.
class Rows {
 public:
  virtual ~Rows() = default;
  // True: there is a row to read. False: there are no more rows.
  virtual absl::StatusOr<bool> Next() = 0;
  // The value of a column of the present row: Int of an integer, Text of a text or a blob.
  virtual int64_t Int(int column) const = 0;
  virtual std::string Text(int column) const = 0;
};

// kKept: the statement is run many times, so the database prepares it once. Rows of a kept statement must be destroyed before
// the same statement is run again.
enum class StatementUse { kOnce, kKept };

class Engine {
 public:
  virtual ~Engine() = default;

  // Opens the database, and takes it for this process until the engine is destroyed. Called once, before everything else below
  // it. FailedPrecondition: another server uses the database; the text names the database and says what to do.
  virtual absl::Status Open() = 0;

  // How messages name the database, such as "the database /srv/lynx/lynx.db". It never contains a password.
  virtual const std::string& name() const = 0;
  // What a person can do about a damaged database: a phrase that begins with a verb.
  virtual std::string MendAdvice() const = 0;
  // What a person should check if the database cannot be opened for this reason.
  virtual std::string OpenAdvice(const absl::Status& reason) const = 0;
  // Warnings to log about how the database is run, such as: it does not sync its files. Empty: there are no warnings.
  virtual std::vector<std::string> Warnings() const { return {}; }

  // The version of the schema in the database; 0: the database is empty. FailedPrecondition: it is another program's.
  virtual absl::StatusOr<int64_t> Schema() = 0;
  // Prepares the database for being written by this process. Called once, before the first transaction.
  virtual absl::Status Claim() = 0;
  // Within a transaction: runs statements that define tables, and records that the schema now has this version.
  virtual absl::Status Define(const std::string& statements, int64_t schema) = 0;
  // All tables of the Store, by name, with the columns in their order.
  virtual absl::StatusOr<std::vector<Table>> Tables() = 0;

  // Begins a transaction, and returns its number. The transaction that is written next after number n has the number n + 1; one
  // that is rolled back leaves its number to the next.
  virtual absl::StatusOr<int64_t> Begin() = 0;
  // Writes the transaction durably. Aborted: the connection was lost, and it is not known yet whether the transaction was
  // written. A later Begin tells: if it was, the number of the new transaction is above that of this one. After every other
  // error it was not written, and Rollback must be called.
  virtual absl::Status Commit() = 0;
  // Ends the transaction without writing it.
  virtual void Rollback() = 0;

  // Outside of a transaction: finds out whether this process still holds the database, and takes it again if only the
  // connection was lost. FailedPrecondition: another server has it.
  virtual absl::Status CheckHeld() { return absl::OkStatus(); }

  // The lease by which this process has the database; null: it has a lock. Not null once Claim has returned OK on PostgreSQL.
  virtual ServerLease* lease() const { return nullptr; }

  virtual absl::StatusOr<std::unique_ptr<Rows>> Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                                    StatementUse use) = 0;
};

// A statement that inserts a row into `table`, or replaces the row with the same key. Its parameters: the values of `keys`,
// then those of `others`.
std::string PutStatement(const std::string& table, const std::vector<std::string>& keys,
                         const std::vector<std::string>& others);

// One statement, to be run once or many times: call Bind for its parameters in order, then Run or Next. Must not outlive the
// engine.
class Statement {
 public:
  Statement(Engine& engine, std::string sql, StatementUse use) : engine_(&engine), sql_(std::move(sql)), use_(use) {}

  Statement& Bind(int64_t value);
  Statement& Bind(const std::string& text);
  Statement& BindBlob(const std::string& bytes);
  // Runs the statement to its end. Afterwards new values can be bound.
  absl::Status Run();
  // True: there is a row to read. False: there are no more rows.
  absl::StatusOr<bool> Next();

  int64_t Int(int column) const { return rows_->Int(column); }
  std::string Text(int column) const { return rows_->Text(column); }

 private:
  Engine* engine_;
  std::string sql_;
  StatementUse use_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<Rows> rows_;  // null: the statement does not run
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_ENGINE_H_
