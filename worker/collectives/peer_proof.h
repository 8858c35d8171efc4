// PeerProof: how both ends of a connection between ranks show that they know their generation's secret, without sending it. The
// connecting rank first sends an opening, which says what it wants, and a nonce. The accepting rank answers with a nonce of its
// own and a proof. The connecting rank checks that proof and sends its own. Neither side accepts anything else before that.
//
//   connecting rank -> opening (with its nonce)   accepting rank -> Challenge   connecting rank -> Mac
//
// A proof is the HMAC-SHA256 of the role, the opening and both nonces, so a proof can neither be reflected to its sender nor
// replayed. The opening names the ranks of both ends and the purpose of the connection.
//
// Free functions; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_
#define LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "common/hmac.h"

namespace lynx::worker {

// Makes a secret for ranks that one process starts itself; the ranks of a job get theirs from the server.
std::string NewConnectionSecret();

using Nonce = std::array<char, 32>;
Nonce NewNonce();

enum class ProofRole : char { kAccepts = 'A', kConnects = 'C' };
// `nonce`: the nonce of the accepting rank; the nonce of the connecting rank is in the opening.
Mac ProofOf(const std::string& secret, ProofRole role, std::string_view opening, const Nonce& nonce);

// What the accepting rank answers to an opening.
struct Challenge {
  Nonce nonce{};
  Mac proof{};
};
inline constexpr size_t kChallengeBytes = 4 + sizeof(Nonce) + sizeof(Mac);
std::string EncodeChallenge(const Challenge& challenge);
// `bytes` may be incomplete; only the magic number at the beginning is checked.
bool MayBeChallenge(std::string_view bytes);
// `bytes` has kChallengeBytes. nullopt: not a challenge.
std::optional<Challenge> DecodeChallenge(std::string_view bytes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_
