#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/backend/host_view.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/shard_reader.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx::worker {
namespace {

constexpr Bytes kRecordLimit = kKiB * 4;
constexpr char kRecordSuffix[] = ".sha256";

absl::Status VerifyFiles(FileSystem& files, const std::string& folder, const std::vector<ShardRecord>& records) {
  for (const ShardRecord& record : records) LYNX_RETURN_IF_ERROR(VerifyShardFile(files, folder, record));
  return absl::OkStatus();
}

// Returns the text of the record file of a shard. Rank 0 reads the record files to learn what the other ranks wrote. The first
// line has the format of sha256sum. The second line gives the size in bytes.
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
  // If the size cannot be parsed, record.bytes stays 0. The record's text then differs from the file's text, and the function
  // returns DataLoss below.
  const size_t space = text->rfind(' ');
  if (space != std::string::npos) {
    std::from_chars(text->data() + space + 1, text->data() + text->size(), record.bytes.value);
  }
  if (RecordText(record) != *text) return absl::DataLossError(absl::StrCat(path, " is damaged"));
  return record;
}

absl::StatusOr<std::vector<ShardRecord>> ReadRecords(FileSystem& files, const std::string& folder,
                                                     const ParallelLayout& layout) {
  std::vector<ShardRecord> records;
  for (const std::string& file : ShardFiles(layout)) {
    LYNX_ASSIGN_OR_RETURN(ShardRecord record, ReadRecord(files, folder, file));
    records.push_back(std::move(record));
  }
  return records;
}

// Returns FailedPrecondition if another run than `here` wrote the checkpoint `there`. The error names the difference and ends
// with `what_to_do`.
absl::Status CheckSameRun(const CheckpointSummary& there, const CheckpointIdentity& here, const char* what_to_do) {
  const std::string difference = RunDifferenceText(there.identity, here);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(there.path, " is a checkpoint of another run: ", difference, "; ", what_to_do));
}

absl::Status ReadState(FileSystem& files, CheckpointSummary checkpoint, bool weights_only, const StageContext& context,
                       int32_t tp_rank, ModelState& state, ReadShare share) {
  if (weights_only) {
    for (const std::span<float> moments : {state.first_moments(), state.second_moments()}) {
      state.backend().Fill(moments.data(), static_cast<int64_t>(moments.size()), 0);
    }
  }
  // If the same layout wrote the checkpoint, the shards of the rank's tensor number hold everything that the rank needs, apart
  // from experts that a rank of another tensor number wrote. All shards of the stage are one after another.
  const int64_t writers = WritingReplicas(context.layout), stage_shards = context.layout.tp * writers;
  const NearShards near{.begin = context.pipeline_rank * stage_shards, .count = stage_shards, .first = tp_rank * writers};
  std::vector<WantedPart> parts = WantedParts(state, weights_only);
  std::vector<HostView> views;
  for (WantedPart& part : parts) {
    views.emplace_back(std::span<float>(part.memory, static_cast<size_t>(part.place.elements())), state.backend());
    part.memory = views.back().floats().data();
  }
  LYNX_RETURN_IF_ERROR(TensorReader(files, std::move(checkpoint)).Read(parts, near, share));
  for (HostView& view : views) view.Store();
  return state.backend().Finish();
}

// Says what the folder for the checkpoint of a step contains now: no checkpoint, a whole one, or a damaged one.
enum class Occupant : uint8_t { kNone, kWhole, kDamaged };
struct Place {
  Occupant occupant = Occupant::kNone;
  Bytes bytes;  // the size of the checkpoint, set for kWhole
};

absl::StatusOr<Place> ExaminePlace(FileSystem& files, const DirectoryContents& contents, const CheckpointIdentity& identity) {
  const std::string name = StepName(identity.step);
  if (std::find(contents.names.begin(), contents.names.end(), name) == contents.names.end()) return Place{};
  for (const CheckpointSummary& checkpoint : contents.checkpoints) {
    if (checkpoint.identity.step != identity.step) continue;
    LYNX_RETURN_IF_ERROR(CheckSameRun(checkpoint, identity, "give each run its own checkpoint.directory"));
    const absl::Status verified = VerifyFiles(files, checkpoint.path, checkpoint.files);
    if (absl::IsDataLoss(verified)) break;
    LYNX_RETURN_IF_ERROR(verified);
    return Place{Occupant::kWhole, checkpoint.bytes};
  }
  return Place{Occupant::kDamaged};
}

// Returns the text of the index. Returns FailedPrecondition if the text, read back, gives a different index: the model or the
// layout has a property for which the index has no field, or a value is beyond its limits.
absl::StatusOr<std::string> ReadableIndexText(const CheckpointIndex& index) {
  std::string text = EncodeIndex(index);
  const absl::StatusOr<CheckpointIndex> read = DecodeIndex(text);
  if (read.ok() && read->identity == index.identity && read->files == index.files) return text;
  return absl::FailedPreconditionError(
      absl::StrCat("the index of a checkpoint cannot describe this run, with layout ", LayoutText(index.identity.layout), ": ",
                   read.ok() ? "it would be read as another one" : std::string(read.status().message())));
}

// Writes the index into the attempt's folder, and makes the checkpoint visible by renaming the folder.
absl::StatusOr<Bytes> PublishAttempt(FileSystem& files, const std::string& directory, const CheckpointIdentity& identity,
                                     bool replace) {
  const std::string attempt = AttemptPath(directory, identity);
  const std::string visible = CheckpointPath(directory, identity.step);
  CheckpointIndex index;
  index.identity = identity;
  LYNX_ASSIGN_OR_RETURN(index.files, ReadRecords(files, attempt, identity.layout));
  for (const ShardRecord& record : index.files) LYNX_RETURN_IF_ERROR(CheckShardSize(files, attempt, record));
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadableIndexText(index));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(attempt, "/", kIndexFile), text));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(attempt));
  LYNX_RETURN_IF_ERROR(CheckFence(files, directory, identity));
  if (replace) {
    const std::string removed = RemovedPath(directory, identity.step);
    LYNX_RETURN_IF_ERROR(files.RemoveTree(removed));
    LYNX_RETURN_IF_ERROR(files.Rename(visible, removed));
  }
  LYNX_RETURN_IF_ERROR(files.Rename(attempt, visible));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(directory));
  return TotalBytes(index.files);
}

// Removes the files and folders with these names. Ignores errors, because a later call tries again.
void RemoveAll(FileSystem& files, const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) files.RemoveTree(absl::StrCat(directory, "/", name)).IgnoreError();
}

}  // namespace

Bytes TotalBytes(const std::vector<ShardRecord>& files) {
  Bytes total;
  for (const ShardRecord& file : files) total += file.bytes;
  return total;
}

std::string CheckpointPath(const std::string& directory, int64_t step) { return absl::StrCat(directory, "/", StepName(step)); }

absl::Status ClaimDirectory(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files) {
  LYNX_RETURN_IF_ERROR(files.CreateFolders(directory));
  LYNX_ASSIGN_OR_RETURN(const DirectoryContents contents, ReadDirectory(files, directory));
  LYNX_RETURN_IF_ERROR(CheckNotReplaced(directory, contents, identity));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, FencePath(directory, identity.job, identity.generation), ""));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(directory));
  RemoveAll(files, directory, LeftOvers(contents, identity));
  return absl::OkStatus();
}

absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica, ModelState& state,
                                       FileSystem& files) {
  std::vector<ParameterSlot> slots = WrittenSlots(context, tp_rank, replica, state);
  const SafetensorsHeader header = ShardHeader(identity, context, tp_rank, slots, /*weights_only=*/false);
  return WriteShard(directory, identity, context, tp_rank, replica, header, ContentOf(state, std::move(slots)), files);
}

absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica,
                                       const SafetensorsHeader& header, const TensorContent& content, FileSystem& files) {
  LYNX_CHECK(identity.step >= 0 && identity.model == context.model && identity.layout == context.layout);
  LYNX_CHECK(replica < WritingReplicas(identity.layout));
  const std::string attempt = AttemptPath(directory, identity);
  const std::string name = ShardFile(identity.layout, context.pipeline_rank, tp_rank, replica);
  LYNX_RETURN_IF_ERROR(files.CreateFolders(attempt));
  LYNX_ASSIGN_OR_RETURN(ShardRecord record, WriteShardFile(files, attempt, name, header, content));
  LYNX_RETURN_IF_ERROR(VerifyShardFile(files, attempt, record));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(attempt, "/", name, kRecordSuffix), RecordText(record)));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(attempt));
  return record;
}

absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files) {
  LYNX_ASSIGN_OR_RETURN(const DirectoryContents contents, ReadDirectory(files, directory));
  LYNX_RETURN_IF_ERROR(CheckNotReplaced(directory, contents, identity));
  LYNX_ASSIGN_OR_RETURN(const Place place, ExaminePlace(files, contents, identity));
  if (place.occupant == Occupant::kWhole) {
    DiscardCheckpoint(directory, identity, files);
    return place.bytes;
  }
  return PublishAttempt(files, directory, identity, place.occupant == Occupant::kDamaged);
}

void PruneCheckpoints(const std::string& directory, const CheckpointIdentity& identity, int32_t keep, FileSystem& files) {
  LYNX_CHECK(keep >= 1);
  // Lists the directory again, because a newer generation may have raised a fence. If no newer fence exists at this point, a
  // generation that starts later finds the checkpoint that was just published, and needs none of the older ones.
  const absl::StatusOr<DirectoryContents> contents = ReadDirectory(files, directory);
  if (!contents.ok() || !CheckNotReplaced(directory, *contents, identity).ok()) return;
  int32_t kept = 1;  // the checkpoint that was just published
  for (const CheckpointSummary& checkpoint : contents->checkpoints) {
    const CheckpointIdentity& other = checkpoint.identity;
    if (other.step >= identity.step || other.job != identity.job) continue;
    if (++kept <= keep) continue;
    // The folder is renamed before its files are removed, because an incomplete checkpoint must not be visible.
    const std::string removed = RemovedPath(directory, other.step);
    if (!files.RemoveTree(removed).ok() || !files.Rename(checkpoint.path, removed).ok()) continue;
    files.RemoveTree(removed).IgnoreError();
  }
  RemoveAll(files, directory, LeftOvers(*contents, identity));
}

void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files) {
  files.RemoveTree(AttemptPath(directory, identity)).IgnoreError();
}

absl::Status LoadCheckpoint(const std::string& directory, const CheckpointIdentity& identity, const StageContext& context,
                            int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files) {
  LYNX_ASSIGN_OR_RETURN(CheckpointSummary checkpoint, ReadSummary(files, directory, identity.step));
  LYNX_RETURN_IF_ERROR(CheckSameRun(checkpoint, identity, "resume with what it was written with"));
  return ReadState(files, std::move(checkpoint), /*weights_only=*/false, context, tp_rank, state, share);
}

absl::Status LoadCopies(const CheckpointSummary& copies, const CheckpointIdentity& identity, const StageContext& context,
                        int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files) {
  LYNX_RETURN_IF_ERROR(CheckSameRun(copies, identity, "resume with what they were made with"));
  return ReadState(files, copies, /*weights_only=*/false, context, tp_rank, state, share);
}

absl::Status LoadStart(const std::string& from, int64_t step, StartWith with, const CheckpointIdentity& identity,
                       const StageContext& context, int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files) {
  const std::optional<CheckpointPlace> one = ParseCheckpointPath(from);
  LYNX_ASSIGN_OR_RETURN(CheckpointSummary checkpoint, ReadSummary(files, one ? one->directory : from, step));
  const bool weights_only = with == StartWith::kWeights || step == 0;
  const std::string difference = StartDifferenceText(checkpoint.identity, identity, !weights_only);
  if (!difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this run cannot ", weights_only ? "begin with the weights of " : "go on from ", checkpoint.path, ": ",
                     difference, weights_only ? "" : "; with checkpoint.weightsOnly only the model must be the same"));
  }
  return ReadState(files, std::move(checkpoint), weights_only, context, tp_rank, state, share);
}

absl::StatusOr<std::vector<CheckpointSummary>> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                                               FileSystem& files) {
  absl::StatusOr<DirectoryContents> contents = ReadDirectory(files, directory);
  if (absl::IsNotFound(contents.status())) return std::vector<CheckpointSummary>();
  LYNX_RETURN_IF_ERROR(contents.status());
  if (damaged != nullptr) damaged->insert(damaged->end(), contents->damaged.begin(), contents->damaged.end());
  return std::move(contents->checkpoints);
}

}  // namespace lynx::worker
