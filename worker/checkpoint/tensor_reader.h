// TensorReader reads whole tensors, or any parts of them, from the shards of a checkpoint that any layout may have written.
// Each shard says in its metadata which pieces it has (tensor_place.h), and the reader reads only the wanted parts of these
// pieces. A shard that must be verified is read once, from beginning to end.
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
  std::string name;  // the name with the suffix of its array: "embed.tok.exp_avg"
  TensorPlace place;
  float* memory = nullptr;  // has room for place.elements()
};

// The shards that a reader searches first: the shards [begin, begin + count) of a checkpoint, beginning with shard begin +
// first. The numbers may be larger than those of the checkpoint's shards, which may be of another layout.
struct NearShards {
  int64_t begin = 0, count = 0, first = 0;
};

class TensorReader {
 public:
  TensorReader(FileSystem& files, CheckpointSummary checkpoint)
      : files_(files), checkpoint_(std::move(checkpoint)), shards_(checkpoint_.files.size()) {}

  // Fills the memory of the parts. `near`: the shards that are searched first. `verified`: the shards whose digests are
  // checked. DataLoss: a file is missing or short, the digest of a verified file is not the recorded one, or the
  // shards together do not contain a whole part. FailedPrecondition: a verified shard's metadata says that the shard belongs to
  // another checkpoint. Each error names the file. After an error the content of the memory is undefined.
  absl::Status Read(const std::vector<WantedPart>& parts, const NearShards& near, ReadShare verified);

  // Describes a whole tensor of the checkpoint. WholeTensors returns all of them by name; it reads the headers of all shards.
  struct WholeTensor {
    int64_t rows = 0;  // 1 for a vector
    int64_t columns = 0;
    bool vector = false;
    int32_t shards = 0;  // number of shards that have a part of it
  };
  absl::StatusOr<std::map<std::string, WholeTensor>> WholeTensors();

  const CheckpointSummary& checkpoint() const { return checkpoint_; }

 private:
  struct Part {  // the part of a whole tensor that one shard has
    TensorPlace place;
    int64_t at_bytes = 0;  // where the part's first element is in the file
    bool vector = false;
  };
  using Shard = std::map<std::string, Part>;  // the key is the name of the whole tensor
  // A rectangle of a wanted tensor for which no shard has been found yet.
  struct Region {
    ParameterPiece piece;  // the offset of the piece counts from `memory`
    float* memory = nullptr;
    int64_t stride = 0;  // number of elements from one row to the next in memory
  };
  // Bytes that are contiguous both in a file and in memory.
  struct Run {
    int64_t at_bytes = 0;
    int64_t bytes = 0;
    float* memory = nullptr;
  };

  absl::StatusOr<const Shard*> HeaderOf(size_t shard);
  absl::StatusOr<Shard> ReadHeader(const ShardRecord& record);
  // Finds the wanted regions that the shard contains. Removes them from `wanted`, and returns the runs that read these regions.
  static std::vector<Run> Cut(const Shard& shard, const std::vector<WantedPart>& parts,
                              std::vector<std::vector<Region>>& wanted);
  static void CutPart(const Part& part, std::vector<Region>& wanted, std::vector<Run>& runs);
  // Computes for every shard which runs must be read, and stores them in `runs`. Returns an error if a header cannot be read or
  // if a wanted part is in no shard.
  absl::Status Plan(const std::vector<WantedPart>& parts, const NearShards& near, ReadShare verified,
                    std::vector<std::vector<Run>>& runs);
  absl::Status ReadRuns(size_t shard, std::vector<Run> runs, bool verify);

  FileSystem& files_;
  CheckpointSummary checkpoint_;
  std::vector<std::optional<Shard>> shards_;  // one per shard; set if the shard's header was read
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_READER_H_
