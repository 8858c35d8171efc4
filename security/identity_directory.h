// IdentityDirectory: who this process is, on disk: the authority that it trusts, its own certificate and private key. Processes
// of one node share a directory; key and certificate are replaced together, by one rename of a link, so whoever reads finds a
// pair. Free of state; thread-safe.
//
//     ca.pem    current -> identity-SERIAL/{key.pem, cert.pem}    lock
#ifndef LYNX_SECURITY_IDENTITY_DIRECTORY_H_
#define LYNX_SECURITY_IDENTITY_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"
#include "node/fd.h"

namespace lynx {

struct Identity {
  std::string authority;    // PEM
  std::string certificate;  // PEM, the authority's after it
  std::string private_key;  // PEM
};

class IdentityDirectory {
 public:
  explicit IdentityDirectory(std::string path) : path_(std::move(path)) {}

  // NotFound: there is none yet. PermissionDenied: others may read the key. InvalidArgument: the files do not belong together.
  absl::StatusOr<Identity> Read() const;
  // Makes the directory, for its owner alone, if it is not there. What Read gives afterwards is the old or the new one.
  absl::Status Replace(const Identity& identity) const;
  // Only the authority, of a process that has no certificate of its own.
  absl::StatusOr<std::string> ReadAuthority() const;

  // Exclusive among the processes that share the directory, which is made if need be; waits at most `limit`.
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
