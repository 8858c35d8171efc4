// TokenDataset is a Dataset over one mapped range of tokens with a fixed width. Every kind of data file is read through it.
// Owns the mapping. Immutable; thread-safe.
#ifndef LYNX_WORKER_DATA_TOKEN_DATASET_H_
#define LYNX_WORKER_DATA_TOKEN_DATASET_H_

#include <memory>
#include <string>

#include "worker/data/dataset.h"
#include "worker/data/mapped_file.h"

namespace lynx::worker {

enum class TokenType : uint8_t { kUint8, kInt8, kUint16, kInt16, kInt32, kInt64 };
int64_t TokenWidthBytes(TokenType type);

class TokenDataset : public Dataset {
 public:
  // The whole `file` consists of tokens of `type`, little-endian. Returns InvalidArgument if there are fewer than seq + 1
  // tokens, or if the file's size is not a multiple of the token's width. `fingerprint` belongs to the whole data set, which
  // may have other files too.
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(MappedFile file, TokenType type, DataFingerprint fingerprint,
                                                         int32_t seq, int32_t vocab, uint64_t seed);

  int64_t SamplesPerEpoch() const override { return samples_; }
  absl::Status Read(int64_t sample_number, int32_t* inputs, int32_t* targets) const override;
  const DataFingerprint& fingerprint() const override { return fingerprint_; }

 private:
  TokenDataset(MappedFile file, TokenType type, DataFingerprint fingerprint, int32_t seq, int32_t vocab, uint64_t seed,
               int64_t samples)
      : file_(std::move(file)), type_(type), fingerprint_(std::move(fingerprint)), seq_(seq), vocab_(vocab), seed_(seed),
        samples_(samples) {}

  MappedFile file_;
  TokenType type_;
  DataFingerprint fingerprint_;
  int32_t seq_;
  int32_t vocab_;
  uint64_t seed_;
  int64_t samples_;
};

// Each function opens one kind of data file, and has a source file of its own.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTextDataset(const std::string& path, int32_t seq, int32_t vocab, uint64_t seed);
absl::StatusOr<std::unique_ptr<Dataset>> OpenMegatronDataset(const std::string& path, int32_t seq, int32_t vocab,
                                                             uint64_t seed);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_TOKEN_DATASET_H_
