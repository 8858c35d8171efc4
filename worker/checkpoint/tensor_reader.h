// TensorReader: reads whole tensors, or any parts of them, from the shards of a checkpoint, whatever layout wrote it. Each
// shard says in its metadata which pieces it has (tensor_place.h), and the reader reads only the wanted parts of them. A shard
// that must be verified is read once, from beginning to end.
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

namespace lynx::worker {

// A part of a whole tensor, and the memory into which it is read.
struct WantedPart {
  std::string name;  // with the array's suffix: "embed.tok.exp_avg"
  TensorPlace place;
  float* memory = nullptr;  // place.elements()
};

class TensorReader {
 public:
  TensorReader(FileSystem& files, CheckpointSummary checkpoint)
      : files_(files), checkpoint_(std::move(checkpoint)), shards_(checkpoint_.files.size()) {}

  // Fills the memory of the parts. `nearest`: number of the shard to search first. `verified`: the shards whose digests are
  // checked. DataLoss if a file is missing or short, if a verified file is not the recorded one, or if the shards together do
  // not contain a whole part. FailedPrecondition if a verified shard's metadata says that it belongs to another checkpoint.
  // Each error names the file. After an error the content of the memory is undefined.
  absl::Status Read(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified);

  // A whole tensor of the checkpoint and its size. WholeTensors returns all of them by name; it reads the headers of all
  // shards.
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
  // A rectangle of a wanted tensor for which no shard has been found yet.
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
  // Finds the wanted regions that the shard contains. Removes them from `wanted`, and returns the runs that read them.
  static std::vector<Run> Cut(const Shard& shard, const std::vector<WantedPart>& parts,
                              std::vector<std::vector<Region>>& wanted);
  static void CutPart(const Part& part, std::vector<Region>& wanted, std::vector<Run>& runs);
  // Computes for every shard the runs that must be read, and stores them in `runs`. Returns an error if a header cannot be read
  // or no shard has a wanted part.
  absl::Status Plan(const std::vector<WantedPart>& parts, int64_t nearest, ReadShare verified,
                    std::vector<std::vector<Run>>& runs);
  absl::Status ReadRuns(size_t shard, std::vector<Run> runs, bool verify);

  FileSystem& files_;
  CheckpointSummary checkpoint_;
  std::vector<std::optional<Shard>> shards_;  // by number; set for those whose header was read
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_
