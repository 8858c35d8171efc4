// Before a rank reads anything, it gives up the rights of the daemon that started it, and can never get more rights again. The
// daemon looks the user up in the system's databases; here a user is only a number.
#ifndef LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
#define LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"

namespace lynx::worker {

// `text` is "UID:GID:GROUP,GROUP". All threads of the process change to this user with exactly these groups, and no program
// that the process starts can get more rights (no_new_privs). Does nothing if the process already has this user, because the
// process may have restarted itself. Returns InvalidArgument for other texts and for root. Returns PermissionDenied if this
// process may not change its user, or if it could undo the change.
absl::Status DropPrivileges(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
