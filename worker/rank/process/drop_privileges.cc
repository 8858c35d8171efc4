#include "worker/rank/process/drop_privileges.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

struct Rights {
  uint32_t user = 0;
  uint32_t group = 0;
  std::vector<gid_t> groups;
};

absl::StatusOr<Rights> Parse(const std::string& text) {
  const absl::Status bad =
      absl::InvalidArgumentError(absl::StrCat("--run-as ", text, " is not UID:GID:GROUP,GROUP of a user other than root"));
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Rights rights;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &rights.user) || !absl::SimpleAtoi(parts[1], &rights.group)) return bad;
  if (rights.user == 0) return bad;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(parts[2], ',', absl::SkipEmpty()))) {
    uint32_t group = 0;
    if (!absl::SimpleAtoi(part, &group)) return bad;
    rights.groups.push_back(group);
  }
  return rights;
}

}  // namespace

absl::Status DropPrivileges(const std::string& text) {
  LYNX_ASSIGN_OR_RETURN(const Rights rights, Parse(text));
  uid_t real = 0, effective = 0, saved = 0;
  getresuid(&real, &effective, &saved);
  const bool is_it = real == rights.user && effective == rights.user && saved == rights.user;
  // The groups are changed first, because a process that has changed its user may not change them any more.
  const bool became = is_it || (setgroups(rights.groups.size(), rights.groups.data()) == 0 &&
                                setresgid(rights.group, rights.group, rights.group) == 0 &&
                                setresuid(rights.user, rights.user, rights.user) == 0);
  if (!became || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot become user ", rights.user, ": ", std::strerror(errno)));
  }
  if (setresuid(0, 0, 0) == 0) return absl::PermissionDeniedError(absl::StrCat("user ", rights.user, " can become root again"));
  return absl::OkStatus();
}

}  // namespace lynx::worker
