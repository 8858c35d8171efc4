// What a server shows to anybody who connects: its certificates. Nothing is verified here: this is for a node that knows the
// digest of the certificate that it looks for, and for saying why a connection failed. Blocks; thread-safe.
#ifndef LYNX_SECURITY_PRESENTED_H_
#define LYNX_SECURITY_PRESENTED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// PEM, the server's own first. `server` is HOST:PORT. Unavailable: nobody answers there within `limit`. FailedPrecondition:
// who answers does not speak TLS.
absl::StatusOr<std::vector<std::string>> PresentedCertificates(const std::string& server, Nanos limit);

// The one with this digest. PermissionDenied where the server does not present it.
absl::StatusOr<std::string> PresentedAuthority(const std::string& server, const std::string& digest, Nanos limit);

}  // namespace lynx

#endif  // LYNX_SECURITY_PRESENTED_H_
