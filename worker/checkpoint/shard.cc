#include "worker/checkpoint/shard.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx {
namespace {

constexpr char kShardFormat[] = "lynx-checkpoint-shard-1";
// Digest and disk see each chunk while it is in the cache.
constexpr size_t kChunkBytes = size_t{4} << 20;

// The array that a tensor is a part of, and what its name ends in.
struct StateArray {
  const char* suffix;
  std::span<float> values;
};
std::array<StateArray, 3> ArraysOf(ModelState& state) {
  return {{{"", state.weights()}, {".exp_avg", state.first_moments()}, {".exp_avg_sq", state.second_moments()}}};
}

int64_t HeldRows(const ParameterSlot& slot) {
  int64_t rows = 0;
  for (const ParameterPiece& piece : slot.pieces) rows += piece.rows;
  return rows;
}

int64_t HeldElements(const ParameterSlot& slot) {
  int64_t elements = 0;
  for (const ParameterPiece& piece : slot.pieces) {
    LYNX_CHECK(piece.offset == elements);  // Pieces lie one after another, so the part is one run of memory.
    elements += piece.rows * piece.columns;
  }
  return elements;
}

// The pieces of one parameter have equal columns (matrices) or one row (vectors), so they stack to this shape.
std::vector<int64_t> ShapeOfPart(const ParameterSlot& slot) {
  if (slot.vector) return {HeldElements(slot)};
  return {HeldRows(slot), slot.pieces.front().columns};
}

std::string PlaceText(const ParameterSlot& slot) {
  std::string text = absl::StrCat(slot.global_rows, "x", slot.global_columns, ":");
  for (const ParameterPiece& piece : slot.pieces) {
    absl::StrAppend(&text, " ", piece.row, "+", piece.rows, ",", piece.column, "+", piece.columns);
  }
  return text;
}

std::string LayersText(const StageContext& context) {
  std::string text;
  for (const StageSlice& slice : context.slices) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", slice.first_layer, ", ", slice.end_layer, ")");
  }
  return text;
}

// All but the generation: what a file must say to be this rank's part of the checkpoint.
SafetensorsHeader PartHeader(const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                             ModelState& state) {
  SafetensorsHeader header;
  header.metadata = {{"format", kShardFormat},
                     {"job", identity.job.value},
                     {"step", absl::StrCat(identity.step)},
                     {"stage", absl::StrCat(context.pipeline_rank)},
                     {"tp_rank", absl::StrCat(tp_rank)},
                     {"layers", LayersText(context)}};
  for (const ParameterSlot& slot : state.slots()) {
    header.metadata["place." + slot.name] = PlaceText(slot);
    if (slot.copy) header.metadata["copy." + slot.name] = "embed.tok";
  }
  for (const StateArray& array : ArraysOf(state)) {
    for (const ParameterSlot& slot : state.slots()) header.Append(slot.name + array.suffix, ShapeOfPart(slot));
  }
  return header;
}

// The memory of every tensor, in the order of PartHeader.
std::vector<std::span<char>> PartMemory(ModelState& state) {
  std::vector<std::span<char>> memory;
  for (const StateArray& array : ArraysOf(state)) {
    for (const ParameterSlot& slot : state.slots()) {
      const std::span<float> part =
          array.values.subspan(static_cast<size_t>(slot.offset), static_cast<size_t>(HeldElements(slot)));
      memory.push_back({reinterpret_cast<char*>(part.data()), part.size_bytes()});
    }
  }
  return memory;
}

// Reads a file from front to back and takes its digest on the way.
class DigestedFile {
 public:
  // DataLoss when the file is missing or has another size than recorded.
  static absl::StatusOr<DigestedFile> Open(FileSystem& files, const std::string& folder, const ShardRecord& record) {
    const std::string path = folder + "/" + record.file;
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenFile(path);
    if (absl::IsNotFound(file.status())) return absl::DataLossError(absl::StrCat(path, " is missing"));
    LYNX_RETURN_IF_ERROR(file.status());
    const Bytes size = (*file)->size();
    if (size != record.bytes) {
      return absl::DataLossError(
          absl::StrCat(path, " has ", size.value, " bytes, not the ", record.bytes.value, " recorded for it"));
    }
    return DigestedFile(std::move(*file), path, record);
  }

  absl::Status Read(std::span<char> out) {
    while (!out.empty()) {
      const std::span<char> chunk = out.first(std::min(out.size(), kChunkBytes));
      if (status_.ok()) status_ = file_->Read(chunk);
      LYNX_RETURN_IF_ERROR(status_);
      digest_->Update({chunk.data(), chunk.size()});
      left_ -= static_cast<int64_t>(chunk.size());
      out = out.subspan(chunk.size());
    }
    return absl::OkStatus();
  }

  // Reads what is left. The first failure to read, or DataLoss when the digest of the whole is not the recorded one.
  absl::Status Finish() {
    LYNX_RETURN_IF_ERROR(status_);
    std::vector<char> chunk(static_cast<size_t>(std::min<int64_t>(left_, kChunkBytes)));
    while (left_ > 0) {
      LYNX_RETURN_IF_ERROR(Read(std::span(chunk).first(static_cast<size_t>(std::min<int64_t>(left_, kChunkBytes)))));
    }
    const std::string digest = digest_->FinishHex();
    if (digest == record_.sha256) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(path_, " is damaged: its SHA-256 is ", digest, ", not the recorded ", record_.sha256));
  }

  const std::string& path() const { return path_; }
  int64_t left_bytes() const { return left_; }

 private:
  DigestedFile(std::unique_ptr<ReadableFile> file, std::string path, const ShardRecord& record)
      : file_(std::move(file)), path_(std::move(path)), record_(record), left_(record.bytes.value) {}

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  ShardRecord record_;
  std::unique_ptr<Sha256> digest_ = std::make_unique<Sha256>();
  int64_t left_;
  absl::Status status_;  // of reading
};

absl::StatusOr<SafetensorsHeader> ReadHeader(DigestedFile& file) {
  if (file.left_bytes() < kSafetensorsPrefixBytes) {
    return absl::DataLossError(absl::StrCat(file.left_bytes(), " bytes are too few for a safetensors file"));
  }
  const int64_t file_bytes = file.left_bytes();
  std::string prefix(kSafetensorsPrefixBytes, '\0');
  LYNX_RETURN_IF_ERROR(file.Read(prefix));
  LYNX_ASSIGN_OR_RETURN(const int64_t length, DecodeSafetensorsPrefix(prefix, file_bytes));
  std::string text(static_cast<size_t>(length), '\0');
  LYNX_RETURN_IF_ERROR(file.Read(text));
  return DecodeSafetensorsHeader(text, file.left_bytes());
}

// FailedPrecondition naming the first thing in which a shard is not what this rank would write.
absl::Status CheckHeader(const SafetensorsHeader& found, const SafetensorsHeader& expected) {
  for (const auto& [key, value] : expected.metadata) {
    const auto at = found.metadata.find(key);
    const std::string there = at == found.metadata.end() ? "missing" : at->second;
    if (there == value) continue;
    const bool of_another = key == "job" || key == "step";
    return absl::FailedPreconditionError(
        absl::StrCat(key, " is ", there, " in the file, ", value, " here: ",
                     of_another ? "the shard is of another checkpoint"
                                : "the model is divided otherwise than when it was written"));
  }
  if (found.tensors.size() != expected.tensors.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the file has ", found.tensors.size(), " tensors, this stage ", expected.tensors.size()));
  }
  std::map<std::string, const SafetensorsEntry*> by_name;
  for (const SafetensorsEntry& entry : found.tensors) by_name[entry.name] = &entry;
  for (const SafetensorsEntry& entry : expected.tensors) {
    const auto at = by_name.find(entry.name);
    if (at == by_name.end()) return absl::FailedPreconditionError(absl::StrCat(entry.name, " is not in the file"));
    if (*at->second != entry) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry.name, " has another shape or place in the file than here"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(DigestedFile& file, const CheckpointIdentity& identity, const StageContext& context,
                         int32_t tp_rank, ModelState& state) {
  LYNX_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(file));
  LYNX_RETURN_IF_ERROR(CheckHeader(header, PartHeader(identity, context, tp_rank, state)));
  for (const std::span<char> memory : PartMemory(state)) LYNX_RETURN_IF_ERROR(file.Read(memory));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file_name,
                                           const CheckpointIdentity& identity, const StageContext& context,
                                           int32_t tp_rank, ModelState& state) {
  SafetensorsHeader header = PartHeader(identity, context, tp_rank, state);
  header.metadata["generation"] = absl::StrCat(identity.generation.value);

  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.CreateFile(folder + "/" + file_name));
  Sha256 digest;
  int64_t bytes = 0;
  const auto append = [&](std::string_view data) -> absl::Status {
    while (!data.empty()) {
      const std::string_view chunk = data.substr(0, kChunkBytes);
      digest.Update(chunk);
      LYNX_RETURN_IF_ERROR(file->Append(chunk));
      bytes += static_cast<int64_t>(chunk.size());
      data.remove_prefix(chunk.size());
    }
    return absl::OkStatus();
  };
  LYNX_RETURN_IF_ERROR(append(EncodeSafetensorsHeader(header)));
  for (const std::span<char> memory : PartMemory(state)) {
    LYNX_RETURN_IF_ERROR(append({memory.data(), memory.size()}));
  }
  LYNX_RETURN_IF_ERROR(file->Sync());
  return ShardRecord{file_name, Bytes(bytes), digest.FinishHex()};
}

absl::Status ReadShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record,
                           const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                           ModelState& state) {
  LYNX_ASSIGN_OR_RETURN(DigestedFile file, DigestedFile::Open(files, folder, record));
  const absl::Status read = ReadTensors(file, identity, context, tp_rank, state);
  // Damage first: a damaged header can look like any other mismatch.
  LYNX_RETURN_IF_ERROR(file.Finish());
  return Annotate(read, file.path());
}

absl::Status VerifyShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record) {
  LYNX_ASSIGN_OR_RETURN(DigestedFile file, DigestedFile::Open(files, folder, record));
  return file.Finish();
}

absl::Status CheckShardSize(FileSystem& files, const std::string& folder, const ShardRecord& record) {
  return DigestedFile::Open(files, folder, record).status();
}

}  // namespace lynx
