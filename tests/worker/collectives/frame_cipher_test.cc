// Tests the frames of encrypted connections: known vectors, and that only the next frame opens, and only if it is unchanged.
#include "worker/collectives/frame_cipher.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/escaping.h"

namespace lynx::worker {
namespace {

constexpr size_t kAround = kFrameHeadBytes + kFrameTagBytes;

Mac SomeSecret(char seed = 's') {
  Mac secret;
  secret.fill(seed);
  return secret;
}

std::string Sealed(FrameCipher& cipher, std::string_view text) {
  std::string frame(kMaxFrameBytes, '\0');
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  frame.resize(cipher.Seal({&piece, 1}, text.size(), frame.data()));
  return frame;
}

// Returns the text of the frame, or "(refused)".
std::string Opened(FrameCipher& cipher, std::string frame) {
  if (!cipher.Open(frame)) return "(refused)";
  return frame.substr(kFrameHeadBytes, frame.size() - kAround);
}

struct Pair {
  explicit Pair(int64_t frames_of_key = kMaxFramesOfKey)
      : sealer(SomeSecret(), FrameCipher::Use::kSeal, frames_of_key),
        opener(SomeSecret(), FrameCipher::Use::kOpen, frames_of_key) {}
  FrameCipher sealer, opener;
};

// The expected bytes come from another implementation of HKDF, HMAC and AES-256-GCM: the hmac module of Python 3.11 and the
// AESGCM class of its package cryptography.
TEST(FrameCipher, KnownVectors) {
  Nonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<char>(i);
  const std::string secret(64, 'a');
  const Mac from_connector = FrameSecretOf(secret, ProofRole::kConnects, "the opening", nonce);
  EXPECT_EQ(absl::BytesToHexString({from_connector.data(), from_connector.size()}),
            "bd1070bd60c317deeb9ec02b399b05351d1603e270d48ac403e272ffbb992740");
  const Mac from_acceptor = FrameSecretOf(secret, ProofRole::kAccepts, "the opening", nonce);
  EXPECT_EQ(absl::BytesToHexString({from_acceptor.data(), from_acceptor.size()}),
            "f50671560c47359e8af7faf11d203df44587eed57d0944015d25fc242cef8b5b");
  FrameCipher sealer(from_connector, FrameCipher::Use::kSeal, 2);
  EXPECT_EQ(absl::BytesToHexString(Sealed(sealer, "hello")), "05000000481e0ecc1f29755ed079cc9d4fc8eb2e906974b6a0");
  EXPECT_EQ(absl::BytesToHexString(Sealed(sealer, "hello")), "0500000050ce62b37707bcd16eb9325c830ebb2bd9c60bd0f3");
  EXPECT_EQ(absl::BytesToHexString(Sealed(sealer, "hello")),
            "050000004c360a7b9cbcb2ac632dcd68ca23049522ac1ba61b");  // under the next key
}

TEST(FrameCipher, PiecesBecomeOneText) {
  Pair pair;
  std::string frame(kMaxFrameBytes, '\0');
  std::string head = "head", empty, body = "body and more";
  const std::vector<iovec> pieces{{head.data(), head.size()}, {empty.data(), 0}, {body.data(), body.size()}};
  frame.resize(pair.sealer.Seal(pieces, 8, frame.data()));
  EXPECT_EQ(Opened(pair.opener, frame), "headbody");
}

TEST(FrameCipher, FramesOpenInTheirOrderAndShowNothing) {
  Pair pair;
  const std::string longest(kMaxFrameText, 'x');
  for (const std::string& text : {std::string("a"), std::string(1000, 'y'), longest, std::string("a")}) {
    const std::string frame = Sealed(pair.sealer, text);
    EXPECT_EQ(frame.size(), text.size() + kAround);
    EXPECT_EQ(frame.find(std::string(16, 'x')), std::string::npos);
    EXPECT_TRUE(Opened(pair.opener, frame) == text);
  }
}

TEST(FrameCipher, NoFrameWithAnotherBitOpens) {
  const std::string frame = [] {
    Pair pair;
    return Sealed(pair.sealer, "some plain text");
  }();
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::string changed = frame;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    Pair pair;
    EXPECT_EQ(Opened(pair.opener, changed), "(refused)") << "bit " << bit;
  }
}

TEST(FrameCipher, NoShorterOrLongerFrameOpens) {
  for (const int more : {-3, -1, 1, 16}) {
    Pair pair;
    std::string frame = Sealed(pair.sealer, "some plain text");
    frame.resize(frame.size() + static_cast<size_t>(more), '\0');
    EXPECT_EQ(Opened(pair.opener, frame), "(refused)") << more;
  }
}

TEST(FrameCipher, RepeatedMovedAndDroppedFramesDoNotOpen) {
  {
    Pair pair;
    const std::string first = Sealed(pair.sealer, "same");
    EXPECT_EQ(Opened(pair.opener, first), "same");
    EXPECT_EQ(Opened(pair.opener, first), "(refused)");
  }
  {
    Pair pair;
    const std::string first = Sealed(pair.sealer, "same"), second = Sealed(pair.sealer, "same");
    EXPECT_NE(first, second);
    EXPECT_EQ(Opened(pair.opener, second), "(refused)");
  }
}

TEST(FrameCipher, TheNextKeyFollowsAtBothEnds) {
  Pair pair(3);
  std::vector<std::string> frames;
  for (int i = 0; i < 10; ++i) frames.push_back(Sealed(pair.sealer, "same"));
  // Frame 0 has nonce 0 under the first key, frame 3 under the second: with one key they would be equal.
  for (size_t i = 0; i < frames.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(frames[i], frames[k]) << i << " " << k;
  }
  for (const std::string& frame : frames) EXPECT_EQ(Opened(pair.opener, frame), "same");
  FrameCipher with_old_key(SomeSecret(), FrameCipher::Use::kOpen);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Opened(with_old_key, frames[static_cast<size_t>(i)]), "same");
  EXPECT_EQ(Opened(with_old_key, frames[3]), "(refused)");
}

TEST(FrameCipher, EachConnectionAndDirectionHasItsOwnKeys) {
  const std::string secret = NewConnectionSecret();
  const Nonce nonce = NewNonce();
  const Mac one = FrameSecretOf(secret, ProofRole::kConnects, "opening", nonce);
  EXPECT_EQ(one, FrameSecretOf(secret, ProofRole::kConnects, "opening", nonce));
  EXPECT_NE(one, FrameSecretOf(secret, ProofRole::kAccepts, "opening", nonce));
  EXPECT_NE(one, FrameSecretOf(secret, ProofRole::kConnects, "Opening", nonce));
  EXPECT_NE(one, FrameSecretOf(secret, ProofRole::kConnects, "opening", NewNonce()));
  EXPECT_NE(one, FrameSecretOf(NewConnectionSecret(), ProofRole::kConnects, "opening", nonce));
}

TEST(FrameCipher, HeadsWithAnImpossibleLengthAreNoHeads) {
  EXPECT_EQ(FrameCipher::TextBytes(std::string("\x01\0\0\0", 4)), 1u);
  EXPECT_EQ(FrameCipher::TextBytes(std::string("\0\0\x01\0", 4)), kMaxFrameText);
  EXPECT_EQ(FrameCipher::TextBytes(std::string("\0\0\0\0", 4)), std::nullopt);
  EXPECT_EQ(FrameCipher::TextBytes(std::string("\x01\0\x01\0", 4)), std::nullopt);
  EXPECT_EQ(FrameCipher::TextBytes("LXRY"), std::nullopt);
}

}  // namespace
}  // namespace lynx::worker
