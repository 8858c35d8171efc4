// Authority: the small certificate authority of one cluster. Its key signs the certificates of the server and of nodes. The key
// is in the server's data directory, and in the store that several servers share (server/access/shared_keys.h). Nowhere else.
//
// The authority's own certificate is renewed long before it ends, with the same key and name. So certificates that were issued
// before verify against the new one, and those that are issued after it verify against the old one, as long as that holds. A
// client that trusts the old one has until its end to get the new one. The server presents both. Thread-safe after Open.
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
  // from the key. A new certificate is valid for `life`. FailedPrecondition: only ca.key is missing, a file is damaged, the
  // files do not belong together, ca.pem is not an authority's certificate, others may read the key, or the certificate has
  // expired. Each error says which of these it is, and what to do.
  static absl::StatusOr<Authority> Open(const std::string& directory, Nanos now, Nanos life = kLife);

  // True if two thirds of the certificate's lifetime are over.
  bool IsDue(Nanos now) const;
  // Makes a new certificate, which is valid for `life`, and writes it to DIRECTORY/ca.pem, before those that have not ended.
  // Returns the authority with the new certificate. Errors are those of WriteFileDurably.
  absl::StatusOr<Authority> Renew(const std::string& directory, Nanos now, Nanos life) const;

  const std::string& certificate() const { return certificate_; }  // in PEM form
  const std::string& chain() const { return chain_; }              // the content of ca.pem: the certificate, then earlier ones
  const std::string& digest() const { return digest_; }            // CertificateDigest of the certificate

  static constexpr Nanos kLife{10LL * 365 * 86'400 * 1'000'000'000};

  struct Issued {
    std::string pem;     // the certificate, followed by the authority's chain
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
  std::string key_, certificate_, chain_, digest_;
};

}  // namespace lynx

#endif  // LYNX_SECURITY_AUTHORITY_H_
