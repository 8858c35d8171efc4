#include "worker/collectives/frame_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/check.h"

namespace lynx::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the frames are written with native integers");

constexpr std::string_view kUse = "lynx ranks, frames 1";  // another use of the secret must have another text
constexpr std::string_view kKeyUse = "key";
constexpr std::string_view kNextUse = "next";
constexpr size_t kNonceBytes = 12;  // the size for which GCM needs no hash (SP 800-38D, section 8.2)

std::string_view TextOf(const Mac& mac) { return {mac.data(), mac.size()}; }
unsigned char* Raw(char* at) { return reinterpret_cast<unsigned char*>(at); }
const unsigned char* Raw(const void* at) { return static_cast<const unsigned char*>(at); }

// HKDF-Expand for one block (RFC 5869, section 2.3), which is as long as the keys of AES-256.
Mac Expanded(const Mac& secret, std::string info) {
  info += '\x01';
  return HmacSha256(TextOf(secret), info);
}

}  // namespace

Mac FrameSecretOf(const std::string& secret, ProofRole sender, std::string_view opening, const Nonce& nonce) {
  const Mac extracted = HmacSha256({nonce.data(), nonce.size()}, secret);
  std::string info(kUse);
  info += static_cast<char>(sender);
  info += opening;
  return Expanded(extracted, std::move(info));
}

void FrameCipher::FreeContext::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

FrameCipher::FrameCipher(const Mac& secret, Use use, int64_t frames_of_key)
    : use_(use), frames_of_key_(frames_of_key), secret_(secret), context_(EVP_CIPHER_CTX_new()) {
  LYNX_CHECK(frames_of_key_ > 0 && frames_of_key_ <= kMaxFramesOfKey && context_ != nullptr);
  SetKey();
}

FrameCipher::FrameCipher(FrameCipher&& other) noexcept = default;

FrameCipher::~FrameCipher() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

void FrameCipher::SetKey() {
  Mac key = Expanded(secret_, std::string(kKeyUse));
  const int set = EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, Raw(key.data()), nullptr, use_ == Use::kSeal);
  OPENSSL_cleanse(key.data(), key.size());
  LYNX_CHECK(set == 1);
}

void FrameCipher::SetNonce() {
  if (next_frame_ == frames_of_key_) {
    secret_ = Expanded(secret_, std::string(kNextUse));
    SetKey();
    next_frame_ = 0;
  }
  std::array<char, kNonceBytes> nonce{};
  std::memcpy(nonce.data(), &next_frame_, sizeof(next_frame_));
  ++next_frame_;
  LYNX_CHECK(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, Raw(nonce.data()), -1) == 1);
}

size_t FrameCipher::Seal(std::span<const iovec> pieces, size_t bytes, char* frame) {
  LYNX_CHECK(use_ == Use::kSeal && bytes >= 1 && bytes <= kMaxFrameText);
  SetNonce();
  const auto length = static_cast<uint32_t>(bytes);
  std::memcpy(frame, &length, kFrameHeadBytes);
  int done = 0;
  LYNX_CHECK(EVP_EncryptUpdate(context_.get(), nullptr, &done, Raw(frame), kFrameHeadBytes) == 1);
  char* at = frame + kFrameHeadBytes;
  size_t left = bytes;
  for (const iovec& piece : pieces) {
    const auto part = static_cast<int>(std::min(piece.iov_len, left));
    if (part == 0) continue;
    LYNX_CHECK(EVP_EncryptUpdate(context_.get(), Raw(at), &done, Raw(piece.iov_base), part) == 1 && done == part);
    at += part;
    left -= static_cast<size_t>(part);
  }
  LYNX_CHECK(left == 0);
  LYNX_CHECK(EVP_EncryptFinal_ex(context_.get(), Raw(at), &done) == 1 && done == 0);
  LYNX_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kFrameTagBytes, at) == 1);
  return kFrameHeadBytes + bytes + kFrameTagBytes;
}

std::optional<size_t> FrameCipher::TextBytes(std::string_view head) {
  uint32_t length = 0;
  LYNX_CHECK(head.size() == kFrameHeadBytes);
  std::memcpy(&length, head.data(), kFrameHeadBytes);
  if (length < 1 || length > kMaxFrameText) return std::nullopt;
  return length;
}

bool FrameCipher::Open(std::span<char> frame) {
  LYNX_CHECK(use_ == Use::kOpen && frame.size() > kFrameHeadBytes + kFrameTagBytes);
  SetNonce();
  const auto bytes = static_cast<int>(frame.size() - kFrameHeadBytes - kFrameTagBytes);
  char* const text = frame.data() + kFrameHeadBytes;
  int done = 0;
  LYNX_CHECK(EVP_DecryptUpdate(context_.get(), nullptr, &done, Raw(frame.data()), kFrameHeadBytes) == 1);
  LYNX_CHECK(EVP_DecryptUpdate(context_.get(), Raw(text), &done, Raw(text), bytes) == 1 && done == bytes);
  LYNX_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kFrameTagBytes, text + bytes) == 1);
  return EVP_DecryptFinal_ex(context_.get(), Raw(text + bytes), &done) == 1;
}

}  // namespace lynx::worker
