// TensorReader: whole tensors, or any parts of them, from the shards of a checkpoint, whatever layout wrote it. Each
// shard says in its metadata which pieces it has (tensor_place.h); the reader cuts what is wanted out of them and
// reads no more of a file than that, but for the shards that it shall verify, which it reads once from front to back.
//
// Borrows the file system; one thread.
#ifndef LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_
#define LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/tensor_place.h"

namespace lynx {

// A part of a whole tensor and where it goes.
struct WantedPart {
  std::string name;  // with the array's suffix: "embed.tok.exp_avg"
  TensorPlace place;
  float* memory = nullptr;  // place.elements()
};

class TensorReader {
 public:
  TensorReader(FileSystem& files, CheckpointSummary checkpoint)
      : files_(files), checkpoint_(std::move(checkpoint)), shards_(checkpoint_.files.size()) {}

  // Fills the parts. `nearest` is the shard to look into first (any number), `verified` those whose digests are
  // taken. DataLoss when a file is missing, short, or verified and not what was recorded, and when the shards do not
  // have all of a part; FailedPrecondition when a verified shard says itself that it is of another checkpoint. Each
  // names the file. After an error the memory holds anything.
  absl::Status Read(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified);

  // Every whole tensor by name, with its extents; pieces are not filled. Reads every header.
  struct WholeTensor {
    int64_t rows = 0;  // 1 for a vector
    int64_t columns = 0;
    bool vector = false;
    int32_t shards = 0;  // that have a part of it
  };
  absl::StatusOr<std::map<std::string, WholeTensor>> WholeTensors();

  const CheckpointSummary& checkpoint() const { return checkpoint_; }

 private:
  struct Part {  // of a whole tensor, in one shard
    TensorPlace place;
    int64_t at_bytes = 0;  // of its first element in the file
    bool vector = false;
  };
  using Shard = std::map<std::string, Part>;  // by the whole tensor's name
  // A rectangle of a tensor that is wanted, not yet found in a shard.
  struct Region {
    ParameterPiece piece;  // its offset is from `memory`
    float* memory = nullptr;
    int64_t stride = 0;  // elements from row to row in memory
  };
  // Bytes of a file that lie together there and in memory.
  struct Run {
    int64_t at_bytes = 0;
    int64_t bytes = 0;
    float* memory = nullptr;
  };

  absl::StatusOr<const Shard*> HeaderOf(size_t shard);
  absl::StatusOr<Shard> ReadHeader(const ShardRecord& record);
  // Moves what the shard has from `wanted` to its runs.
  static std::vector<Run> Cut(const Shard& shard, const std::vector<WantedPart>& parts,
                              std::vector<std::vector<Region>>& wanted);
  static void CutPart(const Part& part, std::vector<Region>& wanted, std::vector<Run>& runs);
  // The runs of every shard; an error where a header or a part is not to be had.
  absl::Status Plan(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified,
                    std::vector<std::vector<Run>>& runs);
  absl::Status ReadRuns(size_t shard, std::vector<Run> runs, bool verify);

  FileSystem& files_;
  CheckpointSummary checkpoint_;
  std::vector<std::optional<Shard>> shards_;  // by number; those whose header was read
};

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_
