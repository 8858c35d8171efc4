#include "worker/checkpoint/shard.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "common/status.h"
#include "worker/backend/host_view.h"

namespace lynx::worker {
namespace {

// The endings of the tensors' names: weights, first moments, second moments.
constexpr std::array<const char*, 3> kSuffixes = {"", kMomentSuffixes[0], kMomentSuffixes[1]};

size_t ArraysIn(bool weights_only) { return weights_only ? 1 : kSuffixes.size(); }

// Returns the address of a slot that the rank updates. `array`: 0 for the weights, 1 for the first moments, 2 for the second
// moments.
float* Place(ModelState& state, size_t array, const ParameterSlot& slot) {
  if (array == 0) return state.UpdatedWeight(slot);
  return (array == 1 ? state.first_moments() : state.second_moments()).data() + slot.share_offset;
}

// Returns the shape of the tensor for the rank's part of a parameter. Without ZeRO, all pieces of a matrix have the same number
// of columns, so their rows are stacked. With ZeRO, a piece may be a part of a row; then the shape is one row.
std::vector<int64_t> ShapeOfPart(const ParameterSlot& slot) {
  const int64_t elements = PlaceOf(slot).elements();
  if (slot.vector) return {elements};
  const int64_t columns = slot.pieces.front().columns;
  const bool stack = std::all_of(slot.pieces.begin(), slot.pieces.end(),
                                 [&](const ParameterPiece& piece) { return piece.columns == columns; });
  return {stack ? elements / columns : 1, stack ? columns : elements};
}

std::string LayersText(const StageContext& context) {
  std::string text;
  for (const StageSlice& slice : context.slices) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", slice.first_layer, ", ", slice.end_layer, ")");
  }
  return text;
}

}  // namespace

std::vector<ParameterSlot> WrittenSlots(const StageContext& context, int32_t tp_rank, int32_t replica,
                                        const ModelState& state) {
  // With ZeRO, no two ranks update the same part of experts, nor two replicas the same part of another parameter. The routers'
  // biases are the same on all replicas.
  const bool writes_experts = state.shares_experts() || StateIndexOf(context, tp_rank, replica).expert == 0;
  const bool writes_others = state.shares_updates() || replica == 0;
  std::vector<ParameterSlot> slots;
  for (const ParameterSlot& slot : state.updated()) {
    const bool writes = slot.by_load ? replica == 0 : slot.expert ? writes_experts : writes_others;
    if (writes) slots.push_back(slot);
  }
  return slots;
}

Bytes StateBytes(const std::vector<ParameterSlot>& slots) {
  int64_t elements = 0;
  for (const ParameterSlot& slot : slots) elements += PlaceOf(slot).elements();
  return Bytes(static_cast<int64_t>(kSuffixes.size() * sizeof(float)) * elements);
}

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
  for (size_t array = 0; array < ArraysIn(weights_only); ++array) {
    for (const ParameterSlot& slot : slots) header.Append(absl::StrCat(slot.name, kSuffixes[array]), ShapeOfPart(slot));
  }
  return header;
}

absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file_name,
                                           const SafetensorsHeader& header, const TensorContent& content) {
  LYNX_ASSIGN_OR_RETURN(WrittenFile file, WriteSafetensorsFile(files, folder + "/" + file_name, header, content));
  return ShardRecord{file_name, file.bytes, std::move(file.sha256)};
}

TensorContent ContentOf(ModelState& state, std::vector<ParameterSlot> slots) {
  // The function keeps the last view, because the span that it returned must stay valid until the next call.
  auto view = std::make_shared<std::optional<HostView>>();
  return [&state, view, slots = std::move(slots)](size_t tensor) -> absl::StatusOr<std::span<const char>> {
    const ParameterSlot& slot = slots[tensor % slots.size()];
    LYNX_ASSIGN_OR_RETURN(HostView part, HostView::Fetch({Place(state, tensor / slots.size(), slot),
                                                          static_cast<size_t>(PlaceOf(slot).elements())},
                                                         state.backend()));
    const std::span<const float> floats = view->emplace(std::move(part)).floats();
    return std::span<const char>(reinterpret_cast<const char*>(floats.data()), floats.size_bytes());
  };
}

std::vector<WantedPart> WantedParts(ModelState& state, bool weights_only) {
  std::vector<WantedPart> parts;
  for (size_t array = 0; array < ArraysIn(weights_only); ++array) {
    for (const ParameterSlot& slot : state.updated()) {
      parts.push_back({absl::StrCat(slot.whole_name, kSuffixes[array]), PlaceOf(slot), Place(state, array, slot)});
    }
  }
  return parts;
}

}  // namespace lynx::worker
