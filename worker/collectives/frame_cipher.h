// FrameCipher encrypts and authenticates the bytes of one direction of a connection between ranks. Both ends derive its keys
// from the connection secret of their generation, from the nonces of both ends and from what the connection is for. So each
// connection and each direction has keys of its own.
//
//   frame = length (4 bytes, little-endian: of the plain text)   cipher text (as long)   tag (16 bytes)
//
// Cipher: AES-256-GCM (NIST SP 800-38D). The length is authenticated too. The nonce of a frame is its number under its key,
// which is not sent: both ends count. So a frame that was changed, left out, repeated or moved does not open. Keys: HKDF-SHA256
// (RFC 5869) with the nonce of the accepting rank as salt, the secret as input, and the use, the direction and the opening
// (peer_proof.h) as info. The opening has the nonce of the connecting rank, the ranks of both ends and the lane. After
// kMaxFramesOfKey frames both ends go on to the next key, which follows from the one before. Who learns a later key does not
// learn an earlier one.
//
// One thread may use a FrameCipher at a time.
#ifndef LYNX_WORKER_COLLECTIVES_FRAME_CIPHER_H_
#define LYNX_WORKER_COLLECTIVES_FRAME_CIPHER_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/hmac.h"
#include "worker/collectives/peer_proof.h"

struct evp_cipher_ctx_st;

namespace lynx::worker {

inline constexpr size_t kFrameHeadBytes = 4;
inline constexpr size_t kFrameTagBytes = 16;
inline constexpr size_t kMaxFrameText = 64 * 1024;  // the longest plain text of a frame; the shortest has one byte
inline constexpr size_t kMaxFrameBytes = kFrameHeadBytes + kMaxFrameText + kFrameTagBytes;
// With one key at most this many frames are sealed: 2^22 frames have at most 2^34 blocks of 16 bytes. RFC 8446, section 5.5,
// allows 2^24.5 TLS records of 2^14 bytes for one key of AES-GCM, which are 2^34.5 blocks; an attacker then has a chance of
// about 2^-57.
inline constexpr int64_t kMaxFramesOfKey = int64_t{1} << 22;

// Returns the secret from which the keys of one direction follow. `sender`: the end of the connection that sends the frames.
// `opening`, `nonce`: see ProofOf.
Mac FrameSecretOf(const std::string& secret, ProofRole sender, std::string_view opening, const Nonce& nonce);

class FrameCipher {
 public:
  enum class Use : uint8_t { kSeal, kOpen };
  // `secret`: from FrameSecretOf; the same at both ends. `frames_of_key`: less than kMaxFramesOfKey only in tests.
  FrameCipher(const Mac& secret, Use use, int64_t frames_of_key = kMaxFramesOfKey);
  ~FrameCipher();
  FrameCipher(FrameCipher&& other) noexcept;
  FrameCipher& operator=(FrameCipher&&) = delete;

  // Seals the first `bytes` bytes of the pieces, 1 <= bytes <= kMaxFrameText, as one frame at `frame`, which has room for
  // kMaxFrameBytes. Returns the size of the frame.
  size_t Seal(std::span<const iovec> pieces, size_t bytes, char* frame);

  // Returns the length of the plain text from the first kFrameHeadBytes of a frame; nullopt: no frame has such a head.
  static std::optional<size_t> TextBytes(std::string_view head);
  // Opens a whole frame in place: afterwards the plain text follows the head. Returns false if the frame is not the next one
  // that the other end sealed. Then the bytes are of no use, and neither is the connection.
  bool Open(std::span<char> frame);

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  void SetKey();
  void SetNonce();  // moves to the next frame, and to the next key if it is due

  const Use use_;
  const int64_t frames_of_key_;
  Mac secret_;              // the keys follow from it; replaced with each key
  int64_t next_frame_ = 0;  // number of the next frame under the present key
  std::unique_ptr<evp_cipher_ctx_st, FreeContext> context_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_FRAME_CIPHER_H_
