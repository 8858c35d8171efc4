// The one table of who may call what. A method that is missing here is not served. Pure.
#ifndef LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
#define LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/values/access.h"

namespace lynx::server {

// The least permission that a call needs.
enum class Need : uint8_t {
  kNothing,  // the call carries its own proof, such as a join token
  kNode,     // a node with its certificate; never a person
  kViewer,   // a person with a token of this role or a higher one; never a node
  kSubmitter,
  kOperator,
  kAdmin,
};
// Which of the caller's rates a call counts against.
enum class Cost : uint8_t { kNothing, kRead, kChange };

struct MethodRule {
  std::string method;  // "Jobs.SubmitJob": service and method, without the package lynx.v1
  Need need;
  Cost cost;
};

const std::vector<MethodRule>& MethodRules();
// The process ends for a method that is not in the table, because the name comes from code, not from a message.
const MethodRule& RuleOf(const std::string& method);

// The role that `need` stands for. Only for kViewer to kAdmin.
Role RoleNeeded(Need need);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
