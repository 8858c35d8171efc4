// The table that says who may call which method. The server does not serve a method that is missing in this table. For calls
// about a job, job_permissions.h says more. Pure.
#ifndef LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
#define LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/values/access.h"

namespace lynx::server {

// The smallest permission that a call needs.
enum class Need : uint8_t {
  kJoinToken,  // a node with a join token, or anybody with a token or certificate
  kNode,       // a node with its certificate; never a person
  kViewer,     // a person with a token of this role or a higher one; never a node
  kSubmitter,
  kOperator,
  kAdmin,
};
// The rate limit against which a call counts: each caller has one for calls that read and one for calls that change something.
enum class Cost : uint8_t { kNothing, kRead, kChange };

struct MethodRule {
  std::string method;  // "Jobs.SubmitJob": service and method, without the package lynx.v1
  Need need;
  Cost cost;
};

const std::vector<MethodRule>& MethodRules();
// Returns the method's row of the table. The process ends if the table has no such row, because the name comes from code, not
// from a message.
const MethodRule& RuleOf(const std::string& method);

// The role that `need` stands for. `need` must be kViewer, kAdmin or a value between them.
Role RoleNeeded(Need need);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_RPC_PERMISSIONS_H_
