#include "worker/checkpoint/shard_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

// The file is read in chunks of this size. A chunk is small enough to stay in the cache between its read and its digest.
constexpr int64_t kChunkBytes = int64_t{4} << 20;

}  // namespace

absl::StatusOr<ShardReader> ShardReader::Open(FileSystem& files, const std::string& folder, const ShardRecord& record,
                                              ShardReading reading) {
  const std::string path = folder + "/" + record.file;
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenFile(path);
  if (absl::IsNotFound(file.status())) return absl::DataLossError(absl::StrCat(path, " is missing"));
  LYNX_RETURN_IF_ERROR(file.status());
  const Bytes size = (*file)->size();
  if (size != record.bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", size.value, " bytes, not the ", record.bytes.value, " recorded for it"));
  }
  return ShardReader(std::move(*file), path, record, reading);
}

absl::Status ShardReader::Read(std::span<char> out) {
  while (!out.empty()) {
    const std::span<char> chunk = out.first(std::min(out.size(), static_cast<size_t>(kChunkBytes)));
    if (status_.ok()) status_ = file_->Read(chunk);
    LYNX_RETURN_IF_ERROR(status_);
    if (digest_ != nullptr) digest_->Update({chunk.data(), chunk.size()});
    left_ -= static_cast<int64_t>(chunk.size());
    out = out.subspan(chunk.size());
  }
  return absl::OkStatus();
}

absl::Status ShardReader::Skip(int64_t bytes) {
  LYNX_CHECK(bytes >= 0);
  if (digest_ != nullptr) {
    std::vector<char> chunk(static_cast<size_t>(std::min(bytes, kChunkBytes)));
    for (; bytes > 0; bytes -= static_cast<int64_t>(chunk.size())) {
      chunk.resize(static_cast<size_t>(std::min(bytes, kChunkBytes)));
      LYNX_RETURN_IF_ERROR(Read(chunk));
    }
    return absl::OkStatus();
  }
  if (status_.ok()) status_ = file_->Skip(bytes);
  LYNX_RETURN_IF_ERROR(status_);
  left_ -= bytes;
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> ShardReader::ReadHeader() {
  LYNX_CHECK(position() == 0);
  if (left_ < kSafetensorsPrefixBytes) {
    return absl::DataLossError(absl::StrCat(path_, ": ", left_, " bytes are too few for a safetensors file"));
  }
  const int64_t file_bytes = left_;
  std::string prefix(kSafetensorsPrefixBytes, '\0');
  LYNX_RETURN_IF_ERROR(Read(prefix));
  const absl::StatusOr<int64_t> length = DecodeSafetensorsPrefix(prefix, file_bytes);
  if (!length.ok()) return Annotate(length.status(), path_);
  std::string text(static_cast<size_t>(*length), '\0');
  LYNX_RETURN_IF_ERROR(Read(text));
  absl::StatusOr<SafetensorsHeader> header = DecodeSafetensorsHeader(text, left_);
  if (!header.ok()) return Annotate(header.status(), path_);
  return header;
}

absl::Status ShardReader::Finish() {
  LYNX_RETURN_IF_ERROR(status_);
  if (digest_ == nullptr) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(Skip(left_));
  const std::string digest = digest_->FinishHex();
  if (digest == record_.sha256) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, " is damaged: its SHA-256 is ", digest, ", not the recorded ", record_.sha256));
}

absl::Status VerifyShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record) {
  LYNX_ASSIGN_OR_RETURN(ShardReader file, ShardReader::Open(files, folder, record, ShardReading::kVerify));
  return file.Finish();
}

absl::Status CheckShardSize(FileSystem& files, const std::string& folder, const ShardRecord& record) {
  return ShardReader::Open(files, folder, record, ShardReading::kTrust).status();
}

}  // namespace lynx::worker
