#include "worker/checkpoint/shard.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/digest.h"
#include "common/status.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx {
namespace {

// Digest and disk see each chunk while it is in the cache.
constexpr size_t kChunkBytes = size_t{4} << 20;

// The array that a tensor is a part of, and what its name ends in.
struct StateArray {
  std::string suffix;
  std::span<float> values;
};
std::array<StateArray, 3> ArraysOf(ModelState& state) {
  return {{{"", state.weights()},
           {kMomentSuffixes[0], state.first_moments()},
           {kMomentSuffixes[1], state.second_moments()}}};
}

// The pieces of one parameter have equal columns (matrices) or one row (vectors), so they stack to this shape.
std::vector<int64_t> ShapeOfPart(const ParameterSlot& slot) {
  const int64_t elements = PlaceOf(slot).elements();
  if (slot.vector) return {elements};
  const int64_t columns = slot.pieces.front().columns;
  return {elements / columns, columns};
}

std::string LayersText(const StageContext& context) {
  std::string text;
  for (const StageSlice& slice : context.slices) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", slice.first_layer, ", ", slice.end_layer, ")");
  }
  return text;
}

// All but the generation.
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
    header.metadata["place." + slot.name] = PlaceText(PlaceOf(slot));
    if (slot.copy) header.metadata["copy." + slot.name] = slot.whole_name;
  }
  for (const StateArray& array : ArraysOf(state)) {
    for (const ParameterSlot& slot : state.slots())
      header.Append(absl::StrCat(slot.name, array.suffix), ShapeOfPart(slot));
  }
  return header;
}

// The memory of every tensor, in the order of PartHeader.
std::vector<std::span<char>> PartMemory(ModelState& state) {
  std::vector<std::span<char>> memory;
  for (const StateArray& array : ArraysOf(state)) {
    for (const ParameterSlot& slot : state.slots()) {
      const std::span<float> part =
          array.values.subspan(static_cast<size_t>(slot.offset), static_cast<size_t>(PlaceOf(slot).elements()));
      memory.push_back({reinterpret_cast<char*>(part.data()), part.size_bytes()});
    }
  }
  return memory;
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

std::vector<WantedPart> WantedParts(ModelState& state, bool weights_only) {
  std::vector<WantedPart> parts;
  for (const StateArray& array : ArraysOf(state)) {
    if (weights_only && !array.suffix.empty()) continue;
    for (const ParameterSlot& slot : state.slots()) {
      parts.push_back(
          {absl::StrCat(slot.whole_name, array.suffix), PlaceOf(slot), array.values.data() + slot.offset});
    }
  }
  return parts;
}

}  // namespace lynx
