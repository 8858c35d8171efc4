#include "worker/data/token_dataset.h"

#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/data/sample_order.h"

namespace lynx::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they are");

template <class T>
int64_t Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));  // the address of a token may be unaligned
  return static_cast<int64_t>(value);
}

int64_t LoadToken(const std::byte* at, TokenType type) {
  switch (type) {
    case TokenType::kUint8: return Load<uint8_t>(at);
    case TokenType::kInt8: return Load<int8_t>(at);
    case TokenType::kUint16: return Load<uint16_t>(at);
    case TokenType::kInt16: return Load<int16_t>(at);
    case TokenType::kInt32: return Load<int32_t>(at);
    case TokenType::kInt64: return Load<int64_t>(at);
  }
  LYNX_CHECK(false);
}

absl::Status BadToken(const std::string& path, int64_t token, int64_t position, int32_t vocab) {
  const char* mend = token < 0 ? "the file was made with another token type than it is read with, or is damaged"
                               : "set model.vocab to more than the file's largest token, or use other data";
  return absl::DataLossError(absl::StrCat(path, ": token ", token, " at position ", position, " is outside the vocabulary of ",
                                          vocab, " (model.vocab): ", mend));
}

}  // namespace

int64_t TokenWidthBytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8: return 1;
    case TokenType::kUint16:
    case TokenType::kInt16: return 2;
    case TokenType::kInt32: return 4;
    case TokenType::kInt64: return 8;
  }
  LYNX_CHECK(false);
}

absl::StatusOr<std::unique_ptr<Dataset>> TokenDataset::Create(MappedFile file, TokenType type, DataFingerprint fingerprint,
                                                              int32_t seq, int32_t vocab, uint64_t seed) {
  LYNX_CHECK(seq >= 1 && vocab >= 1);
  const auto bytes = static_cast<int64_t>(file.bytes().size());
  const int64_t width = TokenWidthBytes(type);
  if (bytes % width != 0) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", bytes, " bytes are not a whole number of ", width,
                                                   "-byte tokens; the file is cut short: make it again"));
  }
  const int64_t tokens = bytes / width;
  if (tokens < int64_t{seq} + 1) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", tokens,
                                                   " tokens are too few for one sample of model.seq + 1 = ", int64_t{seq} + 1,
                                                   "; give a longer file or set model.seq to at most ", tokens - 1));
  }
  const int64_t samples = (tokens - 1) / seq;
  return std::unique_ptr<Dataset>(new TokenDataset(std::move(file), type, std::move(fingerprint), seq, vocab, seed, samples));
}

absl::Status TokenDataset::Read(int64_t sample_number, int32_t* inputs, int32_t* targets) const {
  LYNX_CHECK(sample_number >= 0);
  const int64_t sample = SampleAt(sample_number % samples_, samples_, sample_number / samples_, seed_);
  const int64_t first = sample * seq_;
  const int64_t width = TokenWidthBytes(type_);
  const std::byte* at = file_.bytes().data() + first * width;
  for (int64_t i = 0; i <= seq_; ++i, at += width) {
    const int64_t token = LoadToken(at, type_);
    if (token < 0 || token >= vocab_) return BadToken(file_.path(), token, first + i, vocab_);
    if (i < seq_) inputs[i] = static_cast<int32_t>(token);
    if (i > 0) targets[i - 1] = static_cast<int32_t>(token);
  }
  return absl::OkStatus();
}

}  // namespace lynx::worker
