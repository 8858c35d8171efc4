// Rights: a rank gives up those of the daemon that has started it, and can never get more, before it reads anything. The user
// is looked up by the daemon; here it is numbers.
#ifndef LYNX_WORKER_RANK_PROCESS_RIGHTS_H_
#define LYNX_WORKER_RANK_PROCESS_RIGHTS_H_

#include <string>

#include "absl/status/status.h"

namespace lynx {

// "UID:GID:GROUP,GROUP". All threads of the process become that user, with just these groups, and no program that it starts
// gets more rights (no_new_privs). Does nothing where it is that user already: the process may have started itself again.
// InvalidArgument for other texts and for root; PermissionDenied where this process may not, or could come back.
absl::Status BecomeUser(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PROCESS_RIGHTS_H_
