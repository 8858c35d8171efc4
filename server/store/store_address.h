// Where a store is: the value of --store.
#ifndef LYNX_SERVER_STORE_STORE_ADDRESS_H_
#define LYNX_SERVER_STORE_STORE_ADDRESS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/engine.h"
#include "server/store/postgres_engine.h"
#include "server/store/store.h"

namespace lynx::server {

inline constexpr char kStoreFile[] = "lynx.db";  // in the data directory

// The engine for `address`, not yet opened: postgresql://... or postgres://... (a URL of libpq), sqlite:PATH, or "": the file
// kStoreFile in `data_directory`. InvalidArgument: the address is none of these; the text has no password.
// `claim`: how an engine with a lease takes the store.
absl::StatusOr<std::unique_ptr<Engine>> EngineAt(const std::string& address, const std::string& data_directory,
                                                 LeaseClaim claim = {});
// The file of a store in SQLite; "": the address is another one.
std::string SqliteFileOf(const std::string& address, const std::string& data_directory);

// Opens the store there. The errors are those of EngineAt and Store::Open.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& address, const std::string& data_directory,
                                                 LeaseClaim claim = {});

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_STORE_ADDRESS_H_
