// ShardReader: reads a shard of a published checkpoint from beginning to end. If the shard must be verified, it computes the
// digest meanwhile. Owns the open file; one thread.
#ifndef LYNX_WORKER_CHECKPOINT_SHARD_READER_H_
#define LYNX_WORKER_CHECKPOINT_SHARD_READER_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/digest.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx::worker {

// kVerify reads every byte of the file, and Finish checks that it is the recorded file. kTrust reads only what is asked for.
enum class ShardReading : uint8_t { kVerify, kTrust };

class ShardReader {
 public:
  // DataLoss when the file is missing or has another size than recorded.
  static absl::StatusOr<ShardReader> Open(FileSystem& files, const std::string& folder, const ShardRecord& record,
                                          ShardReading reading);

  // Read fills `out` with the next bytes, Skip passes over bytes. Both return DataLoss beyond the end of the file.
  absl::Status Read(std::span<char> out);
  absl::Status Skip(int64_t bytes);
  // Reads the header; call it first. DataLoss when there is no valid header.
  absl::StatusOr<SafetensorsHeader> ReadHeader();
  // With kVerify, reads the rest of the file. Returns the first failure of the earlier calls, or DataLoss when the digest of
  // the whole file is not the recorded one.
  absl::Status Finish();

  const std::string& path() const { return path_; }
  int64_t position() const { return record_.bytes.value - left_; }  // bytes from the beginning of the file

 private:
  ShardReader(std::unique_ptr<ReadableFile> file, std::string path, const ShardRecord& record, ShardReading reading)
      : file_(std::move(file)), path_(std::move(path)), record_(record),
        digest_(reading == ShardReading::kVerify ? std::make_unique<Sha256>() : nullptr), left_(record.bytes.value) {}

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  ShardRecord record_;
  std::unique_ptr<Sha256> digest_;  // null: the digest is not computed
  int64_t left_;
  absl::Status status_;  // the first failure of reading
};

// DataLoss when the file is missing, or has another size or digest than `record` says.
absl::Status VerifyShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record);
// Like VerifyShardFile, without reading the content. DataLoss if the file is missing or has another size than recorded.
absl::Status CheckShardSize(FileSystem& files, const std::string& folder, const ShardRecord& record);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_READER_H_
