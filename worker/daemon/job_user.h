// JobUser: whom ranks run as.
#ifndef LYNX_WORKER_DAEMON_JOB_USER_H_
#define LYNX_WORKER_DAEMON_JOB_USER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

struct JobUser {
  uint32_t user = 0;  // 0 = as the daemon
  uint32_t group = 0;
  std::vector<uint32_t> groups;
};
// With the groups that the machine's databases give it. "" = as the daemon. NotFound: no such user. InvalidArgument: root.
// FailedPrecondition: this process is not root, and not that user.
absl::StatusOr<JobUser> FindJobUser(const std::string& name);

// For lynx-rank --run-as (worker/rank/process/rights.h).
std::string RightsText(const JobUser& user);

// FailedPrecondition where ranks would run as root on a node that belongs to a cluster with TLS, unless that is allowed in
// words.
absl::Status CheckNotRoot(const JobUser& user, bool has_identity, bool allowed);

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_JOB_USER_H_
