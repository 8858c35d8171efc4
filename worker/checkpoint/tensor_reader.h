// TensorReader: reads whole tensors, or any parts of them, from the shards of a checkpoint, whatever layout wrote it. Each
// shard says in its metadata which pieces it has (tensor_place.h), and the reader reads only the wanted parts of them. A shard
// that it must verify it reads once from beginning to end.
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

// A part of a whole tensor and the memory that it is read into.
struct WantedPart {
  std::string name;  // with the array's suffix: "embed.tok.exp_avg"
  TensorPlace place;
  float* memory = nullptr;  // place.elements()
};

class TensorReader {
 public:
  TensorReader(FileSystem& files, CheckpointSummary checkpoint)
      : files_(files), checkpoint_(std::move(checkpoint)), shards_(checkpoint_.files.size()) {}

  // Fills the parts. `nearest` is the shard to look into first (any number), `verified` are the shards whose digests are
  // checked. DataLoss when a file is missing or short, when a verified file is not the recorded one, and when the shards do not
  // contain all of a part; FailedPrecondition when a verified shard's metadata says that it belongs to another checkpoint. Each
  // error names the file. After an error the content of the memory is undefined.
  absl::Status Read(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified);

  // Every whole tensor by name, with its extents; pieces are not filled in. Reads every header.
  struct WholeTensor {
    int64_t rows = 0;  // 1 for a vector
    int64_t columns = 0;
    bool vector = false;
    int32_t shards = 0;  // number of shards that have a part of it
  };
  absl::StatusOr<std::map<std::string, WholeTensor>> WholeTensors();

  const CheckpointSummary& checkpoint() const { return checkpoint_; }

 private:
  struct Part {  // part of a whole tensor, in one shard
    TensorPlace place;
    int64_t at_bytes = 0;  // where its first element is in the file
    bool vector = false;
  };
  using Shard = std::map<std::string, Part>;  // by the whole tensor's name
  // A rectangle of a tensor that is wanted and not yet found in a shard.
  struct Region {
    ParameterPiece piece;  // its offset is from `memory`
    float* memory = nullptr;
    int64_t stride = 0;  // elements from row to row in memory
  };
  // Bytes that are contiguous both in a file and in memory.
  struct Run {
    int64_t at_bytes = 0;
    int64_t bytes = 0;
    float* memory = nullptr;
  };

  absl::StatusOr<const Shard*> HeaderOf(size_t shard);
  absl::StatusOr<Shard> ReadHeader(const ShardRecord& record);
  // Moves the regions that the shard has from `wanted` to the returned runs.
  static std::vector<Run> Cut(const Shard& shard, const std::vector<WantedPart>& parts,
                              std::vector<std::vector<Region>>& wanted);
  static void CutPart(const Part& part, std::vector<Region>& wanted, std::vector<Run>& runs);
  // Computes the runs of every shard; an error where a header or a part cannot be found.
  absl::Status Plan(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified,
                    std::vector<std::vector<Run>>& runs);
  absl::Status ReadRuns(size_t shard, std::vector<Run> runs, bool verify);

  FileSystem& files_;
  CheckpointSummary checkpoint_;
  std::vector<std::optional<Shard>> shards_;  // by number; set for those whose header was read
};

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_
