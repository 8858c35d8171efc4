// JoinToken: what a node needs to join a cluster. It has a secret that the server accepts once, and the digest of the cluster's
// authority, with which the node recognizes the server at its first connection. Its text form is "lynx-join-1.SECRET.DIGEST".
// Values; thread-safe.
#ifndef LYNX_SECURITY_JOIN_TOKEN_H_
#define LYNX_SECURITY_JOIN_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"

namespace lynx {

struct JoinToken {
  std::string secret;            // 64 hexadecimal digits
  std::string authority_digest;  // 64 hexadecimal digits; CertificateDigest of the authority
};
std::string JoinTokenText(const JoinToken& token);
// Parses a token. InvalidArgument: the error describes the form of a token, and never contains the given text.
absl::StatusOr<JoinToken> ParseJoinToken(const std::string& text);

}  // namespace lynx

#endif  // LYNX_SECURITY_JOIN_TOKEN_H_
