#include "worker/data/data_fingerprint.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/digest.h"

namespace lynx::worker {
namespace {

void AddFile(std::span<const std::byte> file, Sha256& digest) {
  const auto size = static_cast<int64_t>(file.size());
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  // The size of each file is hashed before its content. So the digest changes if bytes move from one file to the next.
  digest.Update(absl::StrCat(size, "\n"));
  const int64_t block = kFingerprintBlock.value;
  if (size <= block * kFingerprintBlocks) return digest.Update(bytes);
  // The code divides before it multiplies, because the product of the size and the block number may exceed 64 bits.
  const int64_t span = size - block;
  const int64_t stride = span / (kFingerprintBlocks - 1), rest = span % (kFingerprintBlocks - 1);
  for (int64_t i = 0; i < kFingerprintBlocks; ++i) {
    const int64_t begin = i * stride + i * rest / (kFingerprintBlocks - 1);
    digest.Update(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(block)));
  }
}

}  // namespace

DataFingerprint FingerprintOf(DataKind kind, std::initializer_list<std::span<const std::byte>> files) {
  DataFingerprint fingerprint{.kind = kind};
  Sha256 digest;
  for (const std::span<const std::byte> file : files) {
    fingerprint.bytes += Bytes(static_cast<int64_t>(file.size()));
    AddFile(file, digest);
  }
  fingerprint.sha256 = digest.FinishHex();
  return fingerprint;
}

std::string FingerprintText(const DataFingerprint& fingerprint) {
  return absl::StrCat(EnumName(fingerprint.kind), " of ", fingerprint.bytes.value, " bytes, SHA-256 ",
                      fingerprint.sha256.substr(0, 16));
}

}  // namespace lynx::worker
