// Reads a text file as tokens: each byte is a token.
#include <utility>

#include "common/status.h"
#include "worker/data/token_dataset.h"

namespace lynx::worker {

absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const std::string& path, int32_t seq, int32_t vocab, uint64_t seed) {
  LYNX_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  DataFingerprint fingerprint = FingerprintOf(DataKind::kText, {file.bytes()});
  return TokenDataset::Create(std::move(file), TokenType::kUint8, std::move(fingerprint), seq, vocab, seed);
}

}  // namespace lynx::worker
