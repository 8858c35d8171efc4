// Gets the certificates that a server presents to any client. The certificates are not verified here. A node that knows only
// the digest of the authority's certificate finds that certificate among them. The certificates also help to explain why a
// connection failed. Blocks; thread-safe.
#ifndef LYNX_SECURITY_PRESENTED_H_
#define LYNX_SECURITY_PRESENTED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// Returns the certificates in PEM form, the server's own certificate first. `server` is HOST:PORT. Unavailable: no connection
// within `limit`. FailedPrecondition: no TLS handshake within `limit`, usually because the other end does not use TLS.
absl::StatusOr<std::vector<std::string>> PresentedCertificates(const std::string& server, Nanos limit);

// Returns the certificate with this digest. PermissionDenied: the server does not present it.
absl::StatusOr<std::string> PresentedAuthority(const std::string& server, const std::string& digest, Nanos limit);

}  // namespace lynx

#endif  // LYNX_SECURITY_PRESENTED_H_
