// The one table of who may call what. A method that is not in it is not served. Pure.
#ifndef LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
#define LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/values/access.h"

namespace lynx {

// The least that a caller must be.
enum class Need : uint8_t {
  kNothing,  // the call brings its own proof, such as a join token
  kNode,     // a node, by its certificate; people, never
  kViewer,   // people, by a token of this role or a higher one; nodes, never
  kSubmitter,
  kOperator,
  kAdmin,
};
// What a call takes from its caller's rate.
enum class Cost : uint8_t { kNothing, kRead, kChange };

struct MethodRule {
  std::string method;  // "Jobs.SubmitJob": service, dot, method, of the package lynx.v1
  Need need;
  Cost cost;
};

const std::vector<MethodRule>& MethodRules();
// Dies for a method that is not in the table: callers are code, not messages.
const MethodRule& RuleOf(const std::string& method);

// The role that `need` asks for; only of kViewer to kAdmin.
Role RoleNeeded(Need need);

}  // namespace lynx

#endif  // LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
