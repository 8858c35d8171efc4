// JoinToken: what a node needs to join a cluster: a secret that the server knows, once, and the digest of the cluster's
// authority, by which the node knows the server at first sight. As text "lynx-join-1.SECRET.DIGEST". Values; thread-safe.
#ifndef LYNX_SECURITY_JOIN_TOKEN_H_
#define LYNX_SECURITY_JOIN_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace lynx {

struct JoinToken {
  std::string secret;            // 64 hexadecimal digits
  std::string authority_digest;  // the same; CertificateDigest of the authority
};
std::string JoinTokenText(const JoinToken& token);
// InvalidArgument says what one looks like, and never what was given.
absl::StatusOr<JoinToken> ParseJoinToken(const std::string& text);

}  // namespace lynx

#endif  // LYNX_SECURITY_JOIN_TOKEN_H_
