// See rpc_permissions.h.
#include "server/access/rpc_permissions.h"

#include "common/check.h"

namespace lynx::server {

const std::vector<MethodRule>& MethodRules() {
  static const auto* rules = new std::vector<MethodRule>{
      {"Jobs.SubmitJob", Need::kSubmitter, Cost::kChange},
      {"Jobs.GetJob", Need::kViewer, Cost::kRead},
      {"Jobs.ListJobs", Need::kViewer, Cost::kRead},
      {"Jobs.CancelJob", Need::kSubmitter, Cost::kChange},
      {"Jobs.HoldJob", Need::kSubmitter, Cost::kChange},
      {"Jobs.ReleaseJob", Need::kSubmitter, Cost::kChange},
      {"Jobs.ListQueues", Need::kViewer, Cost::kRead},
      {"Jobs.SetQueue", Need::kOperator, Cost::kChange},
      {"Jobs.WatchJob", Need::kViewer, Cost::kRead},
      {"Jobs.GetLogs", Need::kViewer, Cost::kRead},
      {"Jobs.TraceJob", Need::kViewer, Cost::kRead},
      {"Cluster.AttachAgent", Need::kNode, Cost::kNothing},
      {"Cluster.AttachWorker", Need::kNode, Cost::kNothing},
      {"Cluster.ListNodes", Need::kViewer, Cost::kRead},
      {"Cluster.CordonNode", Need::kOperator, Cost::kChange},
      {"Cluster.UncordonNode", Need::kOperator, Cost::kChange},
      {"Admin.WhoAmI", Need::kViewer, Cost::kRead},
      {"Admin.CreateJoinToken", Need::kAdmin, Cost::kChange},
      {"Admin.RevokeJoinTokens", Need::kAdmin, Cost::kChange},
      {"Admin.Join", Need::kJoinToken, Cost::kChange},
      {"Admin.RotateCertificate", Need::kNode, Cost::kChange},
      {"Admin.RevokeNode", Need::kAdmin, Cost::kChange},
      {"Admin.AddUser", Need::kAdmin, Cost::kChange},
      {"Admin.ListUsers", Need::kAdmin, Cost::kRead},
      {"Admin.RevokeUser", Need::kAdmin, Cost::kChange},
      {"Admin.AddToken", Need::kAdmin, Cost::kChange},
      {"Admin.RevokeToken", Need::kAdmin, Cost::kChange},
      {"Admin.ListAudit", Need::kAdmin, Cost::kRead},
      {"Admin.ListServers", Need::kAdmin, Cost::kRead},
  };
  return *rules;
}

const MethodRule& RuleOf(const std::string& method) {
  for (const MethodRule& rule : MethodRules()) {
    if (rule.method == method) return rule;
  }
  LYNX_CHECK(false && "a method without a rule");
  return MethodRules().front();
}

Role RoleNeeded(Need need) {
  LYNX_CHECK(need >= Need::kViewer);
  return static_cast<Role>(static_cast<int>(need) - static_cast<int>(Need::kViewer));
}

}  // namespace lynx::server
