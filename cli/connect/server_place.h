// Where a command's server is, as far as flags, the environment and the local cluster tell. Functions of the environment and of
// the files that it names; thread-safe as long as nobody changes the environment.
#ifndef LYNX_CLI_CONNECT_SERVER_PLACE_H_
#define LYNX_CLI_CONNECT_SERVER_PLACE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lynx {

inline constexpr char kDefaultServer[] = "127.0.0.1:7470";

// "" where it is not set.
std::string Environment(const char* name);
// The context file that is always looked for; "" where there is no home to look in.
std::string StandingContextFile();
// The same folder from whatever folder it is named later.
std::string Absolute(const std::string& path);
// $LYNX_HOME/local, else ~/.lynx/local, absolute; "" where there is no home: not one that anybody may write to.
std::string LocalDirectory();
// That describes the local cluster of the directory.
std::string LocalClusterFile(const std::string& directory);
// Its text. NotFound: there is none. FailedPrecondition: it is neither the caller's nor root's, so neither its commands nor its
// server may be trusted.
absl::StatusOr<std::string> ReadLocalClusterFile(const std::string& directory);

// The address that FindServer (cli/local/find_server.h) would find, given --server ("" = not given) alone, for a call in plain
// text. nullopt where a context, an authority or a token might count, or the local cluster's file cannot be read.
std::optional<std::string> PlainServer(const std::string& flag);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_SERVER_PLACE_H_
