// Runs a test of the store on each engine: a fixture derives from StoreOnEngine, its tests are TEST_P, and
// INSTANTIATE_ON_ENGINES names the fixture.
#ifndef LYNX_TESTS_SERVER_STORE_ENGINES_H_
#define LYNX_TESTS_SERVER_STORE_ENGINES_H_

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "server/store/sqlite.h"
#include "server/store/store_address.h"
#include "tests/server/store/postgres_cluster.h"

namespace lynx::server {

enum class EngineKind { kSqlite, kPostgres };

// The address of an empty store.
class StorePlace {
 public:
  explicit StorePlace(EngineKind kind) : kind_(kind) {
    std::string pattern = ::testing::TempDir() + "lynx_store_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ + "/lynx.db";
    if (kind == EngineKind::kPostgres && PostgresCluster::Get() != nullptr) url_ = PostgresCluster::Get()->NewDatabase();
  }
  ~StorePlace() { std::filesystem::remove_all(directory_); }

  EngineKind kind() const { return kind_; }
  std::string address() const { return kind_ == EngineKind::kSqlite ? "sqlite:" + path_ : url_; }
  // How messages name the database.
  std::string name() const { return "the database " + (kind_ == EngineKind::kSqlite ? path_ : url_); }
  const std::string& directory() const { return directory_; }
  const std::string& path() const { return path_; }

  // Runs statements on the closed store without the server.
  void Execute(const std::string& statements) const {
    if (kind_ == EngineKind::kPostgres) return PostgresCluster::Get()->Execute(url_, statements);
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &raw), SQLITE_OK);
    const SqliteHandle db(raw);
    const absl::Status status = ::lynx::server::Execute(raw, statements);
    ASSERT_TRUE(status.ok()) << status;
  }
  // A literal of bytes, which are given as hexadecimal digits.
  std::string Bytes(const std::string& digits) const {
    return kind_ == EngineKind::kSqlite ? "x'" + digits + "'" : "'\\x" + digits + "'";
  }
  // The statement that says which schema the database has.
  std::string SetSchema(int64_t schema) const {
    return (kind_ == EngineKind::kSqlite ? "PRAGMA user_version=" : "UPDATE lynx_store SET schema_version=") +
           std::to_string(schema);
  }

 private:
  EngineKind kind_;
  std::string directory_, path_, url_;
};

class StoreOnEngine : public ::testing::TestWithParam<EngineKind> {
 protected:
  StoreOnEngine() : place_(GetParam()) {}
  void SetUp() override {
    if (GetParam() == EngineKind::kPostgres) LYNX_SKIP_WITHOUT_POSTGRES();
  }
  absl::StatusOr<std::unique_ptr<Store>> TryOpen() const { return OpenStore(place_.address(), ""); }
  std::unique_ptr<Store> Open() const {
    absl::StatusOr<std::unique_ptr<Store>> store = TryOpen();
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  StorePlace place_;
};

#define INSTANTIATE_ON_ENGINES(fixture)                                                                \
  INSTANTIATE_TEST_SUITE_P(On, fixture, ::testing::Values(EngineKind::kSqlite, EngineKind::kPostgres), \
                           [](const auto& info) { return info.param == EngineKind::kSqlite ? "Sqlite" : "Postgres"; })

}  // namespace lynx::server

#endif  // LYNX_TESTS_SERVER_STORE_ENGINES_H_
