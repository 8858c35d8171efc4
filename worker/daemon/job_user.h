// JobUser: the user that ranks run as.
#ifndef LYNX_WORKER_DAEMON_JOB_USER_H_
#define LYNX_WORKER_DAEMON_JOB_USER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx::worker {

struct JobUser {
  uint32_t user = 0;  // 0 = the user of the daemon
  uint32_t group = 0;
  std::vector<uint32_t> groups;
};
// Finds the user and its groups in the machine's databases. "" = the user of the daemon. NotFound: there is no such user.
// InvalidArgument: the user is root. FailedPrecondition: this process runs neither as root nor as that user.
absl::StatusOr<JobUser> FindJobUser(const std::string& name);

// Returns the argument of lynx-rank --run-as (worker/rank/process/drop_privileges.h).
std::string RightsText(const JobUser& user);

// Says who has allowed ranks to run as root. kNobody: nobody. kOperator: the node's operator. kNoTls: the cluster has no TLS,
// which allows root, because such a cluster is on one machine and has one user.
enum class RootRanks : uint8_t { kNobody, kOperator, kNoTls };
// Returns FailedPrecondition if ranks would run as root and nobody allowed it.
absl::Status CheckNotRoot(const JobUser& user, RootRanks allowed_by);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_JOB_USER_H_
