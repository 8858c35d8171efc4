// Copies a store into another database: from SQLite to PostgreSQL, back, or between two of a kind. No server may use either of
// them; the locks of both are taken.
#ifndef LYNX_SERVER_STORE_MOVE_STORE_H_
#define LYNX_SERVER_STORE_MOVE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::server {

struct MovedTable {
  std::string name;
  int64_t rows = 0;
  std::string digest;  // 64 hexadecimal digits: the sum of the SHA-256 of all rows, which does not depend on their order
};

struct MovedStore {
  std::string from, to;  // how messages name the databases
  std::vector<MovedTable> tables;
};

// Copies all rows of the store at `from` into the one at `to` in one transaction, then reads both and compares the number and
// the digest of the rows of each table. `from` stays as it is. Addresses: see store_address.h. FailedPrecondition: a server
// uses one of them; `from` is not there, or has an older schema; `to` has rows. DataLoss: the copy is not what was read. Other
// errors are those of Store::Open and Store::Commit; then `to` has no rows.
absl::StatusOr<MovedStore> MoveStore(const std::string& from, const std::string& to, const std::string& data_directory);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_MOVE_STORE_H_
