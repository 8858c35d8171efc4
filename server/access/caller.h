// Caller: who makes a call. A plain value; pure.
#ifndef LYNX_SERVER_ACCESS_CALLER_H_
#define LYNX_SERVER_ACCESS_CALLER_H_

#include <cstdint>
#include <string>

#include "server/values/access.h"

namespace lynx::server {

struct Caller {
  enum class Kind : uint8_t { kNobody, kLocal, kUser, kNode };
  Kind kind = Kind::kNobody;
  std::string name;           // name of the caller, for kUser and kNode
  Role role = Role::kViewer;  // role of the caller, for kUser and kLocal
  std::string from;           // address of the caller
  std::string serial;         // serial number of the certificate, for kNode
  bool joins = false;         // for kNobody: the caller has shown a valid join token
};
// Names the caller in messages: "alice", "node/n0", kLocalUser, or "" for an unknown caller.
std::string CallerText(const Caller& caller);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_CALLER_H_
