// ServerIdentity: a server, as the lease and the list of servers name it. Several servers may name one store
// (server/store/server_lease.h). Plain values.
#ifndef LYNX_SERVER_VALUES_SERVER_IDENTITY_H_
#define LYNX_SERVER_VALUES_SERVER_IDENTITY_H_

#include <cstdint>
#include <string>

#include "common/units.h"

namespace lynx::server {

struct ServerIdentity {
  std::string id;       // random; identifies this run of the process
  std::string address;  // HOST:PORT by which clients reach it; empty: it takes no calls, for example because it moves the store
  std::string host;     // the machine's name
  int64_t process = 0;
  std::string version;
  std::string encryption;  // the value of --encrypt-ranks; empty: it is not known
};

struct KnownServer {
  ServerIdentity server;
  bool leads = false;
  int64_t epoch = 0;  // epoch of its lease; 0: it does not lead, or its store is SQLite
  Nanos since;        // when it entered itself in the list; Unix time
  Nanos seen_ago;     // since its newest sign of life
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_SERVER_IDENTITY_H_
