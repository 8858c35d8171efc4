#include "worker/checkpoint/shard.h"

#include <array>
#include <iterator>
#include <utility>

#include "common/status.h"

namespace lynx {
namespace {

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

}  // namespace

SafetensorsHeader ShardHeader(const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                              const std::vector<ParameterSlot>& slots, bool weights_only) {
  SafetensorsHeader header;
  header.metadata = {{"format", kShardFormat},
                     {"job", identity.job.value},
                     {"generation", absl::StrCat(identity.generation.value)},
                     {"step", absl::StrCat(identity.step)},
                     {"stage", absl::StrCat(context.pipeline_rank)},
                     {"tp_rank", absl::StrCat(tp_rank)},
                     {"layers", LayersText(context)}};
  for (const ParameterSlot& slot : slots) {
    header.metadata["place." + slot.name] = PlaceText(PlaceOf(slot));
    if (slot.copy) header.metadata["copy." + slot.name] = slot.whole_name;
  }
  std::vector<std::string> suffixes = {""};
  if (!weights_only) suffixes.insert(suffixes.end(), std::begin(kMomentSuffixes), std::end(kMomentSuffixes));
  for (const std::string& suffix : suffixes) {
    for (const ParameterSlot& slot : slots) header.Append(slot.name + suffix, ShapeOfPart(slot));
  }
  return header;
}

absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file_name,
                                           const SafetensorsHeader& header, const TensorContent& content) {
  LYNX_ASSIGN_OR_RETURN(WrittenFile file,
                        WriteSafetensorsFile(files, folder + "/" + file_name, header, content));
  return ShardRecord{file_name, file.bytes, std::move(file.sha256)};
}

TensorContent ContentOf(ModelState& state) {
  return [&state](size_t tensor) -> absl::StatusOr<std::span<const char>> {
    const size_t slots = state.slots().size();
    const ParameterSlot& slot = state.slots()[tensor % slots];
    const std::span<float> part = ArraysOf(state)[tensor / slots].values.subspan(
        static_cast<size_t>(slot.offset), static_cast<size_t>(PlaceOf(slot).elements()));
    return std::span<const char>(reinterpret_cast<const char*>(part.data()), part.size_bytes());
  };
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
