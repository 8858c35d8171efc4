// PeerProof: how both ends of a connection between ranks prove that they know the connection secret of their generation,
// without sending it. First the connecting rank sends an opening, which says what it wants, with a nonce. The accepting rank
// answers with a nonce of its own and a proof. The connecting rank checks this proof and sends its own proof. Until an end has
// checked the other end's proof, it accepts nothing else.
//
//   connecting rank -> opening (with its nonce)   accepting rank -> Challenge   connecting rank -> Mac
//
// A proof is the HMAC-SHA256 of the role, the opening and both nonces. So an attacker can neither send a proof back to its
// sender nor use it a second time. The opening names the ranks of both ends and the purpose of the connection.
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

// Makes a secret for ranks that one process starts itself. The ranks of a job get their secret from the server.
std::string NewConnectionSecret();

using Nonce = std::array<char, 32>;
Nonce NewNonce();

enum class ProofRole : char { kAccepts = 'A', kConnects = 'C' };
// Computes a proof. `nonce`: the nonce of the accepting rank. The nonce of the connecting rank is in the opening.
Mac ProofOf(const std::string& secret, ProofRole role, std::string_view opening, const Nonce& nonce);

// The answer of the accepting rank to an opening.
struct Challenge {
  Nonce nonce{};
  Mac proof{};
};
inline constexpr size_t kChallengeBytes = 4 + sizeof(Nonce) + sizeof(Mac);
std::string EncodeChallenge(const Challenge& challenge);
// Checks only the mark at the beginning. `bytes` may be incomplete.
bool MayBeChallenge(std::string_view bytes);
// `bytes` has kChallengeBytes. Returns nullopt if it is not a challenge.
std::optional<Challenge> DecodeChallenge(std::string_view bytes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_
