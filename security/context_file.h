// ContextFile: the file with all that a person needs to reach a server: its address, the cluster's authority, and a token. The
// file is JSON, and only its owner can read it. Thread-safe for different paths.
#ifndef LYNX_SECURITY_CONTEXT_FILE_H_
#define LYNX_SECURITY_CONTEXT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

struct ClientContext {
  std::string server;     // host:port, or several with commas
  std::string authority;  // the authority's certificate in PEM form; empty: no TLS
  std::string token;      // empty: no token
};
// Writes the file. InvalidArgument: a value is not UTF-8. Other errors are those of WriteSecretFile.
absl::Status WriteContextFile(const std::string& path, const ClientContext& context);
// Reads the file. NotFound: there is no such file. PermissionDenied: others may read it. InvalidArgument: it is not a context
// file.
absl::StatusOr<ClientContext> ReadContextFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_SECURITY_CONTEXT_FILE_H_
