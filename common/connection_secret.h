// The secret by which the ranks of one generation know one another (worker/collectives/peer_proof.h): made by the server,
// brought to the ranks by worker daemons, and told to nobody else, in no log, argument or error.
#ifndef LYNX_COMMON_CONNECTION_SECRET_H_
#define LYNX_COMMON_CONNECTION_SECRET_H_

#include <cstddef>
#include <string_view>

namespace lynx {

inline constexpr size_t kConnectionSecretDigits = 64;

// Whether it has the form of one: hexadecimal digits.
inline bool IsConnectionSecret(std::string_view secret) {
  return secret.size() == kConnectionSecretDigits && secret.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace lynx

#endif  // LYNX_COMMON_CONNECTION_SECRET_H_
