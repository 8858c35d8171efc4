// A text file as tokens: each byte is one.
#include <utility>

#include "common/status.h"
#include "worker/data/token_dataset.h"

namespace lynx {

absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const std::string& path, int32_t seq, int32_t vocab,
                                                         uint64_t seed) {
  LYNX_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return TokenDataset::Create(std::move(file), TokenType::kUint8, seq, vocab, seed);
}

}  // namespace lynx
