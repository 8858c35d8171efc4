// Authority: the small certificate authority of one cluster. Its key signs the server's own certificate and those of nodes; it
// lies in the server's data directory, is read by nobody else, and never leaves it. Thread-safe after Open.
#ifndef LYNX_SECURITY_AUTHORITY_H_
#define LYNX_SECURITY_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

class Authority {
 public:
  // Reads DIRECTORY/ca.key and ca.pem; makes both, and the directory, where neither is there. The certificate is for ten years.
  // FailedPrecondition: one is missing, they do not belong together, the key may be read by others, or the certificate has
  // ended; each says which and what to do.
  static absl::StatusOr<Authority> Open(const std::string& directory, Nanos now);

  const std::string& certificate() const { return certificate_; }  // PEM
  const std::string& digest() const { return digest_; }            // CertificateDigest of it

  struct Issued {
    std::string pem;     // the certificate and after it the authority's
    std::string serial;  // hexadecimal; random
    Nanos ends;
  };
  // `names`: host names and numeric addresses by which clients reach the server.
  absl::StatusOr<Issued> IssueServer(const std::string& request, const std::vector<std::string>& names, Nanos now,
                                     Nanos life) const;
  // For `node`, whatever the request says of names. InvalidArgument where the request is not one, is not signed by its own
  // key, or has a key that is too weak.
  absl::StatusOr<Issued> IssueNode(const std::string& request, const std::string& node, Nanos now, Nanos life) const;

 private:
  Authority() = default;
  std::string key_, certificate_, digest_;
};

}  // namespace lynx

#endif  // LYNX_SECURITY_AUTHORITY_H_
