// SqliteEngine: a store in one file. It uses one connection, a write-ahead log, an exclusive lock and synchronous=FULL. So data
// survive kill -9 and a power failure once Commit has returned OK for them. Not thread-safe.
#ifndef LYNX_SERVER_STORE_SQLITE_ENGINE_H_
#define LYNX_SERVER_STORE_SQLITE_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/engine.h"
#include "server/store/sqlite.h"

namespace lynx::server {

class SqliteEngine : public Engine {
 public:
  explicit SqliteEngine(const std::string& path) : path_(path), name_("the database " + path) {}

  // Creates the file if it does not exist.
  absl::Status Open() override;
  const std::string& name() const override { return name_; }
  std::string MendAdvice() const override;
  std::string OpenAdvice(const absl::Status& reason) const override;
  absl::StatusOr<int64_t> Schema() override;
  absl::Status Claim() override { return absl::OkStatus(); }
  absl::Status Define(const std::string& statements, int64_t schema) override;
  absl::StatusOr<std::vector<Table>> Tables() override;
  absl::StatusOr<int64_t> Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::StatusOr<std::unique_ptr<Rows>> Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                            StatementUse use) override;

 private:
  friend struct StoreForTests;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  using StatementHandle = std::unique_ptr<sqlite3_stmt, Finalizer>;

  absl::Status CheckIntegrity();
  absl::StatusOr<StatementHandle> Compile(const std::string& sql);

  const std::string path_;
  const std::string name_;
  SqliteHandle db_;
  std::map<std::string, StatementHandle> kept_;  // key: the text. It takes longer to prepare than to run one
  int64_t written_ = 0;                          // transactions that this process has written
  bool log_has_remains_ = false;                 // the log still contains data of a failed transaction
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_SQLITE_ENGINE_H_
