// ContextFile: what a person needs to reach a server, in one file: its address, the cluster's authority, and a token. JSON, for
// its owner alone. Values; thread-safe for different paths.
#ifndef LYNX_SECURITY_CONTEXT_FILE_H_
#define LYNX_SECURITY_CONTEXT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

struct ClientContext {
  std::string server;     // host:port
  std::string authority;  // PEM; "" = no TLS
  std::string token;      // "" = none
};
// InvalidArgument for what is not UTF-8; else as WriteSecretFile.
absl::Status WriteContextFile(const std::string& path, const ClientContext& context);
// NotFound; PermissionDenied where others may read it; InvalidArgument where it is no such file.
absl::StatusOr<ClientContext> ReadContextFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_SECURITY_CONTEXT_FILE_H_
