#include "worker/daemon/job_user.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx::worker {

absl::StatusOr<JobUser> FindJobUser(const std::string& name) {
  if (name.empty()) return JobUser{};
  const passwd* entry = ::getpwnam(name.c_str());  // not thread-safe; called when the daemon starts and has only one thread
  if (entry == nullptr)
    return absl::NotFoundError(absl::StrCat("--job-user ", name, ": there is no such user on this machine"));
  if (entry->pw_uid == 0)
    return absl::InvalidArgumentError(absl::StrCat("--job-user ", name, " is root: name an unprivileged user"));
  if (::geteuid() != 0 && ::geteuid() != entry->pw_uid) {
    return absl::FailedPreconditionError(
        absl::StrCat("--job-user ", name, ": only a daemon that runs as root can start ranks as another user"));
  }
  JobUser user{.user = entry->pw_uid, .group = entry->pw_gid};
  int count = 0;
  ::getgrouplist(name.c_str(), entry->pw_gid, nullptr, &count);
  std::vector<gid_t> groups(static_cast<size_t>(count));
  if (count > 0 && ::getgrouplist(name.c_str(), entry->pw_gid, groups.data(), &count) < 0) {
    return absl::InternalError(absl::StrCat("--job-user ", name, ": its groups change while they are read"));
  }
  user.groups.assign(groups.begin(), groups.begin() + count);
  return user;
}

std::string RightsText(const JobUser& user) {
  return absl::StrCat(user.user, ":", user.group, ":", absl::StrJoin(user.groups, ","));
}

absl::Status CheckNotRoot(const JobUser& user, RootRanks allowed_by) {
  if (allowed_by != RootRanks::kNobody || user.user != 0 || ::geteuid() != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "people's jobs would run as root on this node: name an unprivileged user with --job-user, or say --root-ranks if that is "
      "meant, in a container of its own for example");
}

}  // namespace lynx::worker
