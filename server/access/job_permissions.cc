// See job_permissions.h.
#include "server/access/job_permissions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace lynx::server {
namespace {

// The largest number of managers of a queue that an error names.
constexpr size_t kMaxNamed = 5;

// The part of an error that follows the name of the job, and says whose job it is.
std::string WhoseText(const JobRecord& job, bool owner_is_user) {
  if (job.owner.empty()) return "has no owner, because an early version of the server took it";
  if (owner_is_user) return absl::StrCat("is a job of ", job.owner);
  if (job.owner == kLocalUser) return "has no owner, because it was submitted to the server without TLS";
  return absl::StrCat("is a job of ", job.owner, ", who is no longer a user");
}

// Text such as "alice, the managers of queue research (bob, carol) and operators".
std::string WhoMay(const JobRecord& job, const std::vector<std::string>& managers, bool owner_is_user) {
  std::vector<std::string> who;
  if (owner_is_user) who.push_back(job.owner);
  if (!managers.empty()) {
    const size_t named = std::min(managers.size(), kMaxNamed);
    const std::vector<std::string> first(managers.begin(), managers.begin() + static_cast<std::ptrdiff_t>(named));
    who.push_back(absl::StrCat("the managers of queue ", job.spec->scheduling.queue, " (", absl::StrJoin(first, ", "),
                               named < managers.size() ? absl::StrCat(" and ", managers.size() - named, " more") : "", ")"));
  }
  return who.empty() ? "only operators" : absl::StrCat(absl::StrJoin(who, ", "), " and operators");
}

}  // namespace

const std::vector<JobRule>& JobRules() {
  constexpr std::optional<Role> kNobody;
  using enum Role;
  static const auto* rules = new std::vector<JobRule>{
      //                    own job,     a job of a queue that the caller manages,     another user's job
      {"Jobs.SubmitJob", {kSubmitter, kNobody, kNobody}},    {"Jobs.CancelJob", {kSubmitter, kSubmitter, kOperator}},
      {"Jobs.HoldJob", {kSubmitter, kSubmitter, kOperator}}, {"Jobs.ReleaseJob", {kSubmitter, kSubmitter, kOperator}},
      {"Jobs.GetJob", {kViewer, kViewer, kViewer}},          {"Jobs.ListJobs", {kViewer, kViewer, kViewer}},
      {"Jobs.WatchJob", {kViewer, kViewer, kViewer}},        {"Jobs.GetLogs", {kViewer, kViewer, kViewer}},
      {"Jobs.TraceJob", {kViewer, kViewer, kViewer}},
  };
  return *rules;
}

const JobRule& JobRuleOf(const std::string& method) {
  for (const JobRule& rule : JobRules()) {
    if (rule.method == method) return rule;
  }
  LYNX_CHECK(false && "a method without a rule for jobs");
  return JobRules().front();
}

JobRelation RelationTo(const Caller& caller, const JobRecord& job, const std::vector<std::string>& managers) {
  if (caller.kind == Caller::Kind::kLocal) return JobRelation::kOwner;
  if (caller.kind != Caller::Kind::kUser) return JobRelation::kOther;
  if (caller.name == job.owner) return JobRelation::kOwner;
  const bool manages = std::find(managers.begin(), managers.end(), caller.name) != managers.end();
  return manages ? JobRelation::kManager : JobRelation::kOther;
}

absl::Status CheckJobCall(const std::string& method, const Caller& caller, const JobRecord& job,
                          const std::vector<std::string>& managers, bool owner_is_user) {
  const JobRelation relation = RelationTo(caller, job, managers);
  const std::optional<Role>& least = JobRuleOf(method).least.at(static_cast<size_t>(relation));
  if (least.has_value() && caller.role >= *least) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("job ", job.id.value, " (", job.spec->name, ") ",
                                                  WhoseText(job, owner_is_user), "; ", WhoMay(job, managers, owner_is_user),
                                                  " may change it, and ", CallerText(caller), " is a ", RoleName(caller.role)));
}

}  // namespace lynx::server
