// IdentityDirectory is a folder with the identity of this process: the authority that it trusts, its own certificate and its
// private key. Processes of one node share a directory. Key and certificate are replaced together, by one rename of a link, so
// a reader always finds a matching pair. Stateless; thread-safe.
//
//     ca.pem    current -> identity-SERIAL/{key.pem, cert.pem}    lock
#ifndef LYNX_SECURITY_IDENTITY_DIRECTORY_H_
#define LYNX_SECURITY_IDENTITY_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fd.h"
#include "common/units.h"

namespace lynx {

struct Identity {
  std::string authority;    // certificate of the authority, in PEM form; the server's own may be followed by earlier ones
  std::string certificate;  // in PEM form, followed by the authority's chain
  std::string private_key;  // in PEM form
};

class IdentityDirectory {
 public:
  explicit IdentityDirectory(std::string path) : path_(std::move(path)) {}

  // Reads the identity. NotFound: there is no identity yet. PermissionDenied: others may read the key. InvalidArgument: the
  // files do not belong together.
  absl::StatusOr<Identity> Read() const;
  // Replaces the identity. Creates the directory, for its owner only, if it does not exist. Even if Replace fails, Read
  // afterwards returns the old or the new pair of key and certificate; the authority may already be the new one.
  absl::Status Replace(const Identity& identity) const;
  // Reads only the authority, for a process without its own certificate.
  absl::StatusOr<std::string> ReadAuthority() const;

  // Takes an exclusive lock among the processes that share the directory. Creates the directory if necessary; waits at most
  // `limit`.
  absl::StatusOr<UniqueFd> Lock(Nanos limit) const;

  const std::string& path() const { return path_; }
  std::string authority_path() const { return path_ + "/ca.pem"; }
  std::string certificate_path() const { return path_ + "/current/cert.pem"; }
  std::string private_key_path() const { return path_ + "/current/key.pem"; }

 private:
  std::string path_;
};

}  // namespace lynx

#endif  // LYNX_SECURITY_IDENTITY_DIRECTORY_H_
