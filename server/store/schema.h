// The tables of a store, and the steps that lead from one version of them to the next. Both engines take the same text.
//
// To add a step: append an entry to the list in schema.cc, and say here what it added. Reading, writing and moving stores to
// another database follow from the tables themselves.
#ifndef LYNX_SERVER_STORE_SCHEMA_H_
#define LYNX_SERVER_STORE_SCHEMA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/store/engine.h"

namespace lynx::server {

// Version 2 added traces and the clusters of plans. Version 3: cordons and queues. Version 4: UUIDs of GPUs. Version 5: users
// with their tokens, certificates of nodes, and audit records. Version 6: nodes. Version 7: curves. Version 8: owners of
// jobs, managers of queues. Version 9: quotas of users.
inline constexpr int64_t kSchemaVersion = 9;

// Within a transaction: brings a database from version `schema` (0: it is empty) to kSchemaVersion.
absl::Status DefineTables(Engine& engine, int64_t schema);

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_SCHEMA_H_
