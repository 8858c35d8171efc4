// The ranks of a generation prove with the connection secret that they belong together (worker/collectives/peer_proof.h). The
// server makes the secret, and worker daemons pass it to the ranks. Nobody else may learn it, so it is in no log, argument or
// error.
#ifndef LYNX_COMMON_CONNECTION_SECRET_H_
#define LYNX_COMMON_CONNECTION_SECRET_H_

#include <cstddef>
#include <string_view>

namespace lynx {

inline constexpr size_t kConnectionSecretDigits = 64;

// True if the text has the form of a secret: hexadecimal digits.
inline bool IsConnectionSecret(std::string_view secret) {
  return secret.size() == kConnectionSecretDigits && secret.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace lynx

#endif  // LYNX_COMMON_CONNECTION_SECRET_H_
