// The table that says who may do what to whose job. rpc_permissions.h says which role a call needs at all; this table says
// what the caller must be to the job that the call is about. Pure.
//
// A job is owned by the user who submitted it. Its queue may name managers, who may change all of the queue's jobs. On an open
// server (without TLS) everybody is an admin, so the owner does not matter.
#ifndef LYNX_SERVER_ACCESS_JOB_PERMISSIONS_H_
#define LYNX_SERVER_ACCESS_JOB_PERMISSIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/access/caller.h"
#include "server/values/access.h"
#include "server/values/job.h"

namespace lynx::server {

// How the caller is related to a job. If the job's owner is unknown, or is no longer a user, no user is kOwner.
enum class JobRelation : uint8_t { kOwner, kManager, kOther };
inline constexpr int kJobRelationCount = 3;

struct JobRule {
  std::string method;  // the same name as in MethodRule
  // The lowest role with which a caller may make the call, by JobRelation; nullopt: nobody may.
  std::array<std::optional<Role>, kJobRelationCount> least;
};

// Has a rule for each method that is about jobs. For Jobs.SubmitJob, the job is one that exists and has the request's
// idempotency key; the controller refuses the key of another's job.
const std::vector<JobRule>& JobRules();
// Returns the method's row of the table. The process ends if the table has no such row.
const JobRule& JobRuleOf(const std::string& method);

// `managers`: those of the job's queue.
JobRelation RelationTo(const Caller& caller, const JobRecord& job, const std::vector<std::string>& managers);

// Checks whether the caller may make the call `method` for the job. The caller's role must be enough for the method itself.
// PermissionDenied: the text says whose job it is and who may change it. `managers`: those of the job's queue. `owner_is_user`:
// there is a user with the name of the job's owner.
absl::Status CheckJobCall(const std::string& method, const Caller& caller, const JobRecord& job,
                          const std::vector<std::string>& managers, bool owner_is_user);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_JOB_PERMISSIONS_H_
