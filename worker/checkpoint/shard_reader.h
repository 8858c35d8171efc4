// ShardReader reads a shard of a published checkpoint from beginning to end. If the shard must be verified, the reader computes
// its digest at the same time. Owns the open file; one thread.
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

// kVerify: the reader reads every byte of the file, and Finish checks the digest. kTrust: it reads only the bytes that the
// caller asks for.
enum class ShardReading : uint8_t { kVerify, kTrust };

class ShardReader {
 public:
  // Returns DataLoss if the file is missing or its size is not the recorded one.
  static absl::StatusOr<ShardReader> Open(FileSystem& files, const std::string& folder, const ShardRecord& record,
                                          ShardReading reading);

  // Read fills `out` with the next bytes. Skip passes over the next bytes. Both return DataLoss if the file ends before these
  // bytes do.
  absl::Status Read(std::span<char> out);
  absl::Status Skip(int64_t bytes);
  // Reads the header; call it first. Returns DataLoss if there is no valid header.
  absl::StatusOr<SafetensorsHeader> ReadHeader();
  // With kVerify, reads the rest of the file. Returns the first failure of the earlier calls, or DataLoss if the digest of the
  // whole file is not the recorded one.
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
  std::unique_ptr<Sha256> digest_;  // null if the digest is not computed
  int64_t left_;
  absl::Status status_;  // the first failure of reading
};

// Returns DataLoss if the file is missing, or if its size or digest is not the one in `record`.
absl::Status VerifyShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record);
// Returns DataLoss if the file is missing or its size is not the recorded one. Does not read the content.
absl::Status CheckShardSize(FileSystem& files, const std::string& folder, const ShardRecord& record);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_READER_H_
