#include "worker/collectives/peer_proof.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace lynx::worker {
namespace {

constexpr std::string_view kMark = "LXCH";
constexpr std::string_view kUse = "lynx ranks, proof 1";  // another use of the secret must have another text

}  // namespace

std::string NewConnectionSecret() {
  const Nonce random = NewNonce();
  return std::string(absl::BytesToHexString(std::string(random.data(), random.size())));
}

Nonce NewNonce() {
  Nonce nonce;
  FillRandom(nonce);
  return nonce;
}

Mac ProofOf(const std::string& secret, ProofRole role, std::string_view opening, const Nonce& nonce) {
  std::string bytes(kUse);
  bytes += static_cast<char>(role);
  bytes.append(nonce.data(), nonce.size());
  bytes += opening;  // comes last, because everything before it has a fixed length
  return HmacSha256(secret, bytes);
}

std::string EncodeChallenge(const Challenge& challenge) {
  std::string bytes(kMark);
  bytes.append(challenge.nonce.data(), challenge.nonce.size());
  bytes.append(challenge.proof.data(), challenge.proof.size());
  return bytes;
}

bool MayBeChallenge(std::string_view bytes) {
  const size_t compared = std::min(bytes.size(), kMark.size());
  return bytes.substr(0, compared) == kMark.substr(0, compared);
}

std::optional<Challenge> DecodeChallenge(std::string_view bytes) {
  LYNX_CHECK(bytes.size() == kChallengeBytes);
  if (!MayBeChallenge(bytes)) return std::nullopt;
  Challenge challenge;
  std::memcpy(challenge.nonce.data(), bytes.data() + kMark.size(), challenge.nonce.size());
  std::memcpy(challenge.proof.data(), bytes.data() + kMark.size() + challenge.nonce.size(), challenge.proof.size());
  return challenge;
}

}  // namespace lynx::worker
