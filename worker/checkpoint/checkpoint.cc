#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/shard.h"

namespace lynx {
namespace {

// An index of 4096 * 4096 shards would have about 2 GiB; one of the largest clusters, some MiB.
constexpr Bytes kIndexLimit = kMiB * 256;
constexpr Bytes kRecordLimit = kKiB * 4;
constexpr char kRecordSuffix[] = ".sha256";

std::string StepName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string AttemptName(int64_t step, Generation generation) {
  return absl::StrCat(".", StepName(step), ".g", generation.value);
}

std::string AttemptPath(const std::string& directory, const CheckpointIdentity& identity) {
  return absl::StrCat(directory, "/", AttemptName(identity.step, identity.generation));
}

std::string RemovedPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/.removed-", StepName(step));
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The step of a visible checkpoint's name.
std::optional<int64_t> ParseStepName(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  const std::optional<int64_t> step = ParseNumber(name.substr(5));
  return step && StepName(*step) == name ? step : std::nullopt;
}

// Whether a crash of an older generation, or while removing, has left this.
bool IsLeftOver(const std::string& name, Generation generation) {
  if (name.starts_with(".removed-step-")) return true;
  const size_t dot = name.rfind(".g");
  if (!name.starts_with(".step-") || dot == std::string::npos) return false;
  const std::optional<int64_t> step = ParseNumber(std::string_view(name).substr(6, dot - 6));
  const std::optional<int64_t> owner = ParseNumber(std::string_view(name).substr(dot + 2));
  return step && owner && AttemptName(*step, Generation(*owner)) == name && *owner < generation.value;
}

Bytes TotalBytes(const std::vector<ShardRecord>& files) {
  Bytes total;
  for (const ShardRecord& file : files) total += file.bytes;
  return total;
}

// NotFound when there is no folder of that step; DataLoss when its index is missing or damaged.
absl::StatusOr<CheckpointSummary> ReadSummary(FileSystem& files, const std::string& directory, int64_t step) {
  const std::string path = CheckpointPath(directory, step);
  const std::string index_path = absl::StrCat(path, "/", kIndexFile);
  const absl::StatusOr<std::string> text = ReadWholeFile(files, index_path, kIndexLimit);
  if (absl::IsNotFound(text.status())) {
    const absl::Status folder = files.List(path).status();
    if (absl::IsNotFound(folder)) return absl::NotFoundError(absl::StrCat("there is no checkpoint ", path));
    return absl::DataLossError(absl::StrCat(index_path, " is missing"));
  }
  LYNX_RETURN_IF_ERROR(text.status());
  absl::StatusOr<CheckpointIndex> index = DecodeIndex(*text);
  if (!index.ok()) return Annotate(index.status(), index_path);
  if (index->identity.step != step) {
    return absl::DataLossError(absl::StrCat(index_path, " is of step ", index->identity.step));
  }
  const Bytes bytes = TotalBytes(index->files);
  return CheckpointSummary{std::move(index->identity), path, bytes, std::move(index->files)};
}

// The visible checkpoints, newest first, and what is wrong with unreadable ones. Fails only if the directory cannot
// be listed.
struct Contents {
  std::vector<std::string> names;  // all, hidden ones too
  std::vector<CheckpointSummary> checkpoints;
  std::vector<std::string> damaged;
};
absl::StatusOr<Contents> ReadDirectory(FileSystem& files, const std::string& directory) {
  Contents contents;
  LYNX_ASSIGN_OR_RETURN(contents.names, files.List(directory));
  for (const std::string& name : contents.names) {
    const std::optional<int64_t> step = ParseStepName(name);
    if (!step) continue;
    absl::StatusOr<CheckpointSummary> summary = ReadSummary(files, directory, *step);
    if (summary.ok()) {
      contents.checkpoints.push_back(*std::move(summary));
    } else {
      contents.damaged.push_back(std::string(summary.status().message()));
    }
  }
  std::sort(contents.checkpoints.begin(), contents.checkpoints.end(),
            [](const CheckpointSummary& a, const CheckpointSummary& b) { return a.identity.step > b.identity.step; });
  return contents;
}

absl::Status VerifyFiles(FileSystem& files, const std::string& folder, const std::vector<ShardRecord>& records) {
  for (const ShardRecord& record : records) LYNX_RETURN_IF_ERROR(VerifyShardFile(files, folder, record));
  return absl::OkStatus();
}

// A shard's record beside it, so that rank 0 learns from the disk what the other ranks wrote. The line is as
// sha256sum prints it, with the size behind.
std::string RecordText(const ShardRecord& record) {
  return absl::StrCat(record.sha256, "  ", record.file, "\n# bytes ", record.bytes.value, "\n");
}

absl::StatusOr<ShardRecord> ReadRecord(FileSystem& files, const std::string& folder, const std::string& file) {
  const std::string path = absl::StrCat(folder, "/", file, kRecordSuffix);
  const absl::StatusOr<std::string> text = ReadWholeFile(files, path, kRecordLimit);
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(absl::StrCat(path, " is missing: its rank has not written its shard"));
  }
  LYNX_RETURN_IF_ERROR(text.status());
  ShardRecord record;
  record.file = file;
  record.sha256 = text->substr(0, 64);
  const size_t space = text->rfind(' ');
  if (space != std::string::npos && text->ends_with('\n')) {
    record.bytes =
        Bytes(ParseNumber(std::string_view(*text).substr(space + 1, text->size() - space - 2)).value_or(0));
  }
  if (RecordText(record) != *text) return absl::DataLossError(absl::StrCat(path, " is damaged"));
  return record;
}

absl::StatusOr<std::vector<ShardRecord>> ReadRecords(FileSystem& files, const std::string& folder,
                                                     const ParallelLayout& layout) {
  std::vector<ShardRecord> records;
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    for (int32_t tp_rank = 0; tp_rank < layout.tp; ++tp_rank) {
      LYNX_ASSIGN_OR_RETURN(ShardRecord record, ReadRecord(files, folder, ShardFile(stage, tp_rank)));
      records.push_back(std::move(record));
    }
  }
  return records;
}

// FailedPrecondition naming in what a checkpoint is of another run.
absl::Status CheckSameRun(const CheckpointSummary& there, const CheckpointIdentity& here) {
  std::vector<std::string> differences;
  if (there.identity.job != here.job) {
    differences.push_back(absl::StrCat("it is of job ", there.identity.job.value, ", this is ", here.job.value));
  }
  if (there.identity.seed != here.seed) {
    differences.push_back(absl::StrCat("its seed is ", there.identity.seed, ", here it is ", here.seed));
  }
  for (const std::string& difference :
       {DifferenceText(there.identity.model, here.model), DifferenceText(there.identity.layout, here.layout)}) {
    if (!difference.empty()) differences.push_back(difference);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(there.path, " is a checkpoint of another run: ", absl::StrJoin(differences, "; "),
                   "; give each run its own checkpoint.directory"));
}

// What stands in the place where a step's checkpoint shall be.
enum class Occupant : uint8_t { kNone, kWhole, kDamaged };
struct Place {
  Occupant occupant = Occupant::kNone;
  Bytes bytes;  // of kWhole
};

absl::StatusOr<Place> ExaminePlace(FileSystem& files, const Contents& contents, const CheckpointIdentity& identity) {
  const std::string name = StepName(identity.step);
  if (std::find(contents.names.begin(), contents.names.end(), name) == contents.names.end()) return Place{};
  for (const CheckpointSummary& checkpoint : contents.checkpoints) {
    if (checkpoint.identity.step != identity.step) continue;
    LYNX_RETURN_IF_ERROR(CheckSameRun(checkpoint, identity));
    const absl::Status verified = VerifyFiles(files, checkpoint.path, checkpoint.files);
    if (absl::IsDataLoss(verified)) break;
    LYNX_RETURN_IF_ERROR(verified);
    return Place{Occupant::kWhole, checkpoint.bytes};
  }
  return Place{Occupant::kDamaged};
}

// Verifies the attempt, completes it with its index and renames it into view.
absl::StatusOr<Bytes> PublishAttempt(FileSystem& files, const std::string& directory,
                                     const CheckpointIdentity& identity, bool replace) {
  const std::string attempt = AttemptPath(directory, identity);
  const std::string visible = CheckpointPath(directory, identity.step);
  CheckpointIndex index;
  index.identity = identity;
  LYNX_ASSIGN_OR_RETURN(index.files, ReadRecords(files, attempt, identity.layout));
  LYNX_RETURN_IF_ERROR(VerifyFiles(files, attempt, index.files));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(attempt, "/", kIndexFile), EncodeIndex(index)));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(attempt));
  if (replace) {
    const std::string removed = RemovedPath(directory, identity.step);
    LYNX_RETURN_IF_ERROR(files.RemoveTree(removed));
    LYNX_RETURN_IF_ERROR(files.Rename(visible, removed));
  }
  LYNX_RETURN_IF_ERROR(files.Rename(attempt, visible));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(directory));
  return TotalBytes(index.files);
}

// Best effort: what cannot be removed now is tried again after the next checkpoint.
void ClearAway(FileSystem& files, const std::string& directory, const Contents& before,
               const CheckpointIdentity& identity, int32_t keep) {
  int32_t kept = 1;  // The one just published.
  for (const CheckpointSummary& checkpoint : before.checkpoints) {
    const CheckpointIdentity& other = checkpoint.identity;
    if (other.step >= identity.step || other.job != identity.job) continue;
    if (++kept <= keep) continue;
    // Renamed first: a checkpoint must not be visible while its files go.
    const std::string removed = RemovedPath(directory, other.step);
    if (!files.RemoveTree(removed).ok() || !files.Rename(checkpoint.path, removed).ok()) continue;
    files.RemoveTree(removed).IgnoreError();
  }
  files.RemoveTree(RemovedPath(directory, identity.step)).IgnoreError();
  for (const std::string& name : before.names) {
    if (IsLeftOver(name, identity.generation)) files.RemoveTree(absl::StrCat(directory, "/", name)).IgnoreError();
  }
}

// The first thing that stands against loading a checkpoint into this rank.
absl::Status CheckLoadable(const CheckpointSummary& checkpoint, const StageContext& context) {
  const CheckpointIdentity& there = checkpoint.identity;
  for (const std::string& difference :
       {DifferenceText(there.model, context.model), DifferenceText(there.layout, context.layout)}) {
    if (difference.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path, " does not fit: ", difference, "; resume with what it was written with"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string CheckpointPath(const std::string& directory, int64_t step) {
  return absl::StrCat(directory, "/", StepName(step));
}

absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, ModelState& state,
                                       FileSystem& files) {
  LYNX_CHECK(identity.step >= 0 && identity.model == context.model && identity.layout == context.layout);
  const std::string attempt = AttemptPath(directory, identity);
  const std::string name = ShardFile(context.stage, tp_rank);
  LYNX_RETURN_IF_ERROR(files.CreateFolders(attempt));
  LYNX_ASSIGN_OR_RETURN(ShardRecord record, WriteShardFile(files, attempt, name, identity, context, tp_rank, state));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(attempt, "/", name, kRecordSuffix), RecordText(record)));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(attempt));
  return record;
}

absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                                        int32_t keep, FileSystem& files) {
  LYNX_CHECK(keep >= 1);
  LYNX_ASSIGN_OR_RETURN(const Contents before, ReadDirectory(files, directory));
  for (const CheckpointSummary& checkpoint : before.checkpoints) {
    if (checkpoint.identity.job != identity.job || checkpoint.identity.generation <= identity.generation) continue;
    return absl::AlreadyExistsError(absl::StrCat(checkpoint.path, " was published by generation ",
                                                 checkpoint.identity.generation.value, " of job ", identity.job.value,
                                                 ": this generation, ", identity.generation.value, ", is replaced"));
  }
  LYNX_ASSIGN_OR_RETURN(const Place place, ExaminePlace(files, before, identity));
  Bytes bytes = place.bytes;
  if (place.occupant == Occupant::kWhole) {
    DiscardCheckpoint(directory, identity, files);
  } else {
    LYNX_ASSIGN_OR_RETURN(bytes, PublishAttempt(files, directory, identity, place.occupant == Occupant::kDamaged));
  }
  ClearAway(files, directory, before, identity, keep);
  return bytes;
}

void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files) {
  files.RemoveTree(AttemptPath(directory, identity)).IgnoreError();
}

absl::Status LoadCheckpoint(const std::string& directory, int64_t step, const StageContext& context, int32_t tp_rank,
                            ModelState& state, FileSystem& files) {
  LYNX_ASSIGN_OR_RETURN(const CheckpointSummary checkpoint, ReadSummary(files, directory, step));
  LYNX_RETURN_IF_ERROR(CheckLoadable(checkpoint, context));
  const auto shard = static_cast<size_t>(context.stage * context.layout.tp + tp_rank);
  return ReadShardFile(files, checkpoint.path, checkpoint.files[shard], context, tp_rank, state);
}

std::vector<CheckpointSummary> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                               FileSystem& files) {
  absl::StatusOr<Contents> contents = ReadDirectory(files, directory);
  if (absl::IsNotFound(contents.status())) return {};
  const std::vector<std::string> unreadable =
      contents.ok() ? contents->damaged : std::vector<std::string>{std::string(contents.status().message())};
  if (damaged != nullptr) damaged->insert(damaged->end(), unreadable.begin(), unreadable.end());
  return contents.ok() ? std::move(contents->checkpoints) : std::vector<CheckpointSummary>();
}

absl::StatusOr<int64_t> NewestVerifiedStep(const std::string& directory, std::vector<std::string>* skipped,
                                           FileSystem& files) {
  const absl::StatusOr<Contents> contents = ReadDirectory(files, directory);
  const bool absent = absl::IsNotFound(contents.status());
  if (absent || (contents.ok() && contents->checkpoints.empty() && contents->damaged.empty())) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", directory));
  }
  LYNX_RETURN_IF_ERROR(contents.status());
  std::vector<std::string> reasons = contents->damaged;
  std::optional<int64_t> newest;
  for (const CheckpointSummary& checkpoint : contents->checkpoints) {
    const absl::Status status = VerifyFiles(files, checkpoint.path, checkpoint.files);
    if (status.ok()) {
      newest = checkpoint.identity.step;
      break;
    }
    reasons.push_back(std::string(status.message()));
  }
  if (skipped != nullptr) skipped->insert(skipped->end(), reasons.begin(), reasons.end());
  if (newest) return *newest;
  return absl::DataLossError(
      absl::StrCat("no checkpoint in ", directory, " is whole: ", absl::StrJoin(reasons, "; "),
                   "; restore one from a copy, or start again in another checkpoint.directory"));
}

}  // namespace lynx
