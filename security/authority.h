// Authority: the small certificate authority of one cluster. Its key signs the certificates of the server and of nodes. The key
// is in the server's data directory. Only the server reads the key, and the key never leaves the server's machine. Thread-safe
// after Open.
#ifndef LYNX_SECURITY_AUTHORITY_H_
#define LYNX_SECURITY_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

class Authority {
 public:
  // Reads DIRECTORY/ca.key and ca.pem. If neither exists, creates both and the directory; if only ca.pem is missing, creates it
  // from the key. A new certificate is valid for ten years. FailedPrecondition: only ca.key is missing, a file is damaged, the
  // files do not belong together, ca.pem is not an authority's certificate, others may read the key, or the certificate has
  // expired. Each error says which of these it is, and what to do.
  static absl::StatusOr<Authority> Open(const std::string& directory, Nanos now);

  const std::string& certificate() const { return certificate_; }  // in PEM form
  const std::string& digest() const { return digest_; }            // CertificateDigest of the certificate

  struct Issued {
    std::string pem;     // the certificate, followed by the authority's
    std::string serial;  // a random number in hexadecimal digits
    Nanos ends;
  };
  // `names`: host names and numeric addresses by which clients reach the server.
  absl::StatusOr<Issued> IssueServer(const std::string& request, const std::vector<std::string>& names, Nanos now,
                                     Nanos life) const;
  // Issues a certificate for `node`, whatever names the request contains. InvalidArgument: the text is not a certificate
  // request, is not signed by its own key, or its key is too weak.
  absl::StatusOr<Issued> IssueNode(const std::string& request, const std::string& node, Nanos now, Nanos life) const;

 private:
  Authority() = default;
  std::string key_, certificate_, digest_;
};

}  // namespace lynx

#endif  // LYNX_SECURITY_AUTHORITY_H_
