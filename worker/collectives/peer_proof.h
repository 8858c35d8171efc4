// PeerProof: how both ends of a connection between ranks show that they know their generation's secret, which itself never
// travels between them. Who connects opens with what it wants and a nonce; who accepts answers with a nonce of its own and a
// proof; who connects checks that one and proves itself too. Only then is anything else listened to.
//
//   connecting rank -> opening (with its nonce)   accepting rank -> Challenge   connecting rank -> Mac
//
// A proof is the HMAC-SHA256 of role, opening and both nonces, so none can be sent back, or sent again. The opening names the
// ranks of both ends and what the connection is for.
//
// Free functions; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_
#define LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "common/hmac.h"

namespace lynx {

// A secret for ranks that one process starts itself; those of jobs get theirs from the server.
std::string NewConnectionSecret();

using Nonce = std::array<char, 32>;
Nonce NewNonce();

enum class ProofRole : char { kAccepts = 'A', kConnects = 'C' };
// `nonce`: of who accepts; that of who connects is in the opening.
Mac ProofOf(const std::string& secret, ProofRole role, std::string_view opening, const Nonce& nonce);

// What who accepts answers to an opening.
struct Challenge {
  Nonce nonce{};
  Mac proof{};
};
inline constexpr size_t kChallengeBytes = 4 + sizeof(Nonce) + sizeof(Mac);
std::string EncodeChallenge(const Challenge& challenge);
// `bytes` may be incomplete; only the mark is looked at.
bool MayBeChallenge(std::string_view bytes);
// `bytes` has kChallengeBytes. nullopt: not a challenge.
std::optional<Challenge> DecodeChallenge(std::string_view bytes);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_PEER_PROOF_H_
