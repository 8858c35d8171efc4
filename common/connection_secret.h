// The ranks of a generation prove with the connection secret that they belong together (worker/collectives/peer_proof.h). The
// server makes the secret, and worker daemons pass it to the ranks. Nobody else may learn it, so it is in no log, argument or
// error.
#ifndef LYNX_COMMON_CONNECTION_SECRET_H_
#define LYNX_COMMON_CONNECTION_SECRET_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/enum_names.h"

namespace lynx {

// Whether the ranks of a cluster also encrypt their connections. The operator decides (lynx-server --encrypt-ranks), and no job
// can change it.
enum class RankEncryption : uint8_t {
  kOff,
  // Ranks encrypt everything that they send to each other. NCCL cannot, so ranks that would use it refuse to begin.
  kOn,
  kExceptNccl,  // as kOn, but what NCCL moves between GPUs is not encrypted
};
template <>
inline constexpr auto kEnumNames<RankEncryption> = EnumTable("off", "on", "except-nccl");

inline constexpr size_t kConnectionSecretDigits = 64;

// True if the text has the form of a secret: hexadecimal digits.
inline bool IsConnectionSecret(std::string_view secret) {
  return secret.size() == kConnectionSecretDigits && secret.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace lynx

#endif  // LYNX_COMMON_CONNECTION_SECRET_H_
