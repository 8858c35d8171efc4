#include "worker/checkpoint/offline.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/shard_reader.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx::worker {

absl::StatusOr<FoundCheckpoints> FindCheckpoints(const std::string& path, FileSystem& files) {
  FoundCheckpoints found;
  if (const std::optional<CheckpointPlace> place = ParseCheckpointPath(path)) {
    absl::StatusOr<CheckpointSummary> summary = ReadSummary(files, place->directory, place->step);
    if (absl::IsNotFound(summary.status())) return summary.status();
    if (summary.ok()) {
      found.checkpoints.push_back(*std::move(summary));
    } else {
      found.damaged.push_back(std::string(summary.status().message()));
    }
    return found;
  }
  LYNX_ASSIGN_OR_RETURN(DirectoryContents contents, ReadDirectory(files, path));
  if (contents.checkpoints.empty() && contents.damaged.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", path, ": no folder such as ", StepName(100)));
  }
  return FoundCheckpoints{std::move(contents.checkpoints), std::move(contents.damaged)};
}

absl::StatusOr<std::vector<TensorSummary>> TensorsOf(const CheckpointSummary& checkpoint, FileSystem& files) {
  LYNX_ASSIGN_OR_RETURN(const auto tensors, TensorReader(files, checkpoint).WholeTensors());
  std::vector<TensorSummary> summaries;
  for (const auto& [name, tensor] : tensors) {
    TensorSummary& summary = summaries.emplace_back();
    summary.name = name;
    summary.shape = tensor.vector ? std::vector<int64_t>{tensor.columns} : std::vector<int64_t>{tensor.rows, tensor.columns};
    summary.shards = tensor.shards;
  }
  return summaries;
}

std::vector<std::string> VerifyCheckpoint(const CheckpointSummary& checkpoint, FileSystem& files) {
  std::vector<std::string> wrong;
  for (const ShardRecord& record : checkpoint.files) {
    const absl::Status verified = VerifyShardFile(files, checkpoint.path, record);
    if (!verified.ok()) wrong.push_back(std::string(verified.message()));
  }
  return wrong;
}

}  // namespace lynx::worker
