// LeaderMemory: which of several servers led when a command last called them, so that the next command begins with that one. It
// is a small file, one line for each list of addresses, the newest first:
//
//   ADDRESSES LEADER
//
// The address may be out of date. So callers begin with it only if it is one of their addresses, and try the others if it does
// not lead. Errors are ignored; then nothing is remembered. Thread-safe for different files; processes may use one file at the
// same time.
#ifndef LYNX_CLI_CONNECT_LEADER_MEMORY_H_
#define LYNX_CLI_CONNECT_LEADER_MEMORY_H_

#include <string>

namespace lynx::cli {

// The file `leaders` beside the standing context (server_place.h); "" if there is no home.
std::string LeadersFile();
// Returns which of the servers in `addresses` (HOST:PORT with commas) led last, as the file says; "": it is not known, or
// `file` is "".
std::string RememberedLeader(const std::string& file, const std::string& addresses);
// Replaces the file, in which the newest kMaxRemembered lists stay. Does nothing if `file` is "".
void RememberLeader(const std::string& file, const std::string& addresses, const std::string& leader);

inline constexpr int kMaxRemembered = 32;

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_LEADER_MEMORY_H_
