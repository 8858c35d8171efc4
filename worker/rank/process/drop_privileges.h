// Rights: before a rank reads anything, it gives up the rights of the daemon that started it, and can never get more rights
// again. The daemon looks up the user; here the user is only numbers.
#ifndef LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
#define LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"

namespace lynx::worker {

// `text` is "UID:GID:GROUP,GROUP". All threads of the process become that user with exactly these groups, and no program that
// the process starts can get more rights (no_new_privs). If the process is that user already, does nothing: the process may
// have restarted itself. InvalidArgument for other texts and for root. PermissionDenied if this process has no right to change
// its user, or could undo the change.
absl::Status DropPrivileges(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_DROP_PRIVILEGES_H_
