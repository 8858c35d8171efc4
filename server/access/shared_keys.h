// What must be the same on all servers of one store: the key and the certificate of the cluster's authority, the key of the
// ranks' connections, and the directory of the jobs' checkpoints. The first server that leads writes its own into the store.
// Each other server takes them from there, and keeps copies of the keys in its data directory, where a server that is alone has
// the only ones. Stateless; not thread-safe on one directory.
#ifndef LYNX_SERVER_ACCESS_SHARED_KEYS_H_
#define LYNX_SERVER_ACCESS_SHARED_KEYS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx::server {

// Names of the values in the store.
inline constexpr char kSharedAuthorityKey[] = "authority.key";
inline constexpr char kSharedAuthority[] = "authority.pem";
inline constexpr char kSharedConnectionKey[] = "connections.key";
inline constexpr char kSharedCheckpoints[] = "checkpoint_root";
inline constexpr char kSharedEncryption[] = "encrypt_ranks";  // of the newest leader: whether ranks encrypt

using SharedValues = std::map<std::string, std::string>;

struct SharedPlaces {
  std::string authority_directory;  // empty: the server has no TLS
  std::string connection_key;       // the path of the file
  std::string checkpoint_root;      // below this server's own directory; an absolute path
  std::string store;                // how messages name the database
};

// True: another server has written everything that a server with these places needs.
bool IsComplete(const SharedValues& stored, const SharedPlaces& places);

// Writes into the directory what the store has and the directory lacks. Of two certificates with the authority's key the one
// that ends later is kept. FailedPrecondition: the directory has another key than the store, or the store's servers use TLS and
// this one does not; nothing was changed, and the text says what to do.
absl::Status TakeShared(const SharedValues& stored, const SharedPlaces& places);

// Call it after TakeShared, on the server that leads. Returns what the store lacks. Makes the keys if the directory has none.
// Empty: nothing. `used`: the store is that of a cluster already. FailedPrecondition: it is, and the cluster's keys are neither
// in the store nor in the directory.
absl::StatusOr<SharedValues> MissingShared(const SharedValues& stored, const SharedPlaces& places, bool used, Nanos now,
                                           Nanos authority_life);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_SHARED_KEYS_H_
