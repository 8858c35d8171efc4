// Finds a command's server from flags, the environment and the local cluster. The functions depend on the environment
// and on the files that it names. Thread-safe as long as nobody changes the environment.
#ifndef LYNX_CLI_CONNECT_SERVER_PLACE_H_
#define LYNX_CLI_CONNECT_SERVER_PLACE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lynx::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:7470";

// The value of the environment variable; "" if it is not set.
std::string Environment(const char* name);
// The context file that every command looks for if nothing else names a context; "" if there is no home.
std::string StandingContextFile();
// The absolute form of a path, so that it means the same folder later.
std::string Absolute(const std::string& path);
// $LYNX_HOME/local, or ~/.lynx/local if LYNX_HOME is not set, as an absolute path. "" if there is no home: a folder that
// anybody may write to would not be safe.
std::string LocalDirectory();
// The file that describes the local cluster in the directory.
std::string LocalClusterFile(const std::string& directory);
// The text of the local cluster's file. NotFound: there is no file, or `directory` is "". PermissionDenied: it cannot be read.
// FailedPrecondition: it belongs neither to the caller nor to root, so its commands and its server cannot be trusted.
absl::StatusOr<std::string> ReadLocalClusterFile(const std::string& directory);

// Returns the server's address, or several with commas, for a call in plain text, as FindServer (cli/local/find_server.h) would
// find it. Of the flags of a connection, only --server may be given; `flag` is its value, "" if it is not given. Returns
// nullopt if this shortcut cannot decide: there may be a context, an authority or a token, or the local cluster's file cannot
// be used.
std::optional<std::string> PlainServer(const std::string& flag);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_SERVER_PLACE_H_
