// Before a rank reads anything, it gives up the rights of the daemon that started it, and can never get more rights again. The
// daemon looks the user up in the system's databases; here a user is only a number.
#ifndef LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
#define LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"

namespace lynx::worker {

// `text` is "UID:GID:GROUP,GROUP". All threads of the process change to this user with exactly these groups. If the process has
// this user already (it may have restarted itself), user and groups stay as they are. In both cases, no program that the
// process starts can get more rights (no_new_privs). Returns InvalidArgument for other texts and for root. Returns
// PermissionDenied if the process may not change its user, or if it could become root again.
absl::Status DropPrivileges(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
