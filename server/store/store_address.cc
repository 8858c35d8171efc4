// See store_address.h.
#include "server/store/store_address.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "server/store/postgres_connection.h"
#include "server/store/postgres_engine.h"
#include "server/store/sqlite_engine.h"

namespace lynx::server {

std::string SqliteFileOf(const std::string& address, const std::string& data_directory) {
  if (address.empty()) return absl::StrCat(data_directory, "/", kStoreFile);
  constexpr char kSqlite[] = "sqlite:";
  return absl::StartsWith(address, kSqlite) ? address.substr(sizeof kSqlite - 1) : "";
}

absl::StatusOr<std::unique_ptr<Engine>> EngineAt(const std::string& address, const std::string& data_directory,
                                                 LeaseClaim claim) {
  if (const std::string file = SqliteFileOf(address, data_directory); !file.empty())
    return std::make_unique<SqliteEngine>(file);
  if (absl::StartsWith(address, "postgresql://") || absl::StartsWith(address, "postgres://")) {
    LYNX_RETURN_IF_ERROR(CheckPostgresUrl(address));
    return std::make_unique<PostgresEngine>(address, PostgresLimits{}, std::move(claim));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--store ", WithoutPassword(address),
                   " is not the address of a store: write sqlite:PATH, postgresql://USER@HOST/DATABASE, "
                   "or nothing for the file ",
                   kStoreFile, " in --data-dir"));
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& address, const std::string& data_directory,
                                                 LeaseClaim claim) {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineAt(address, data_directory, std::move(claim)));
  return Store::Open(std::move(engine));
}

}  // namespace lynx::server
