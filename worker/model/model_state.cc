#include "worker/model/model_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>

#include "common/check.h"
#include "common/rng.h"
#include "common/status.h"
#include "planner/program/state_sharing.h"
#include "worker/backend/host_view.h"
#include "worker/model/normal_numbers.h"

namespace lynx::worker {
namespace {

// Says how a parameter is divided among tensor-parallel ranks.
enum class Split : uint8_t {
  kWhole,           // every rank has the whole parameter
  kParts,           // a rank has a range of rows (or of a vector's elements) from each of several parts: qkv, gate and up
  kVocabularyRows,  // a rank has a shard of ceil(v / t) rows; the last shards have padding
  kColumns,         // a rank has a range of a matrix's columns, stored as a contiguous (rows, columns / t) matrix
  kExperts,         // a rank has the rows of its experts
};

enum class InitialValue : uint8_t { kZero, kOne, kNormal, kNormalByDepth };

// The size of a parameter along one axis, as a property of the model.
enum class Extent : uint8_t {
  kOne,
  kHidden,
  kQkvRows,
  kContext,
  kFc1Rows,
  kFfn,
  kQueryNorm,
  kKeyNorm,
  kLatents,
  kNormedLatents,
  kQueries,
  kQueryInputs,
  kKeyValues,
  kKeyValueInputs,
  kExperts,
  kExpertFc1Rows,
  kExpertFc2Rows,
  kExpertFfn,
  kSharedFc1Rows,
  kSharedFfn,
  kSeq,
  kVocab
};

struct ParameterInfo {
  Parameter parameter;
  std::string_view suffix;  // the end of the name, after "embed.", "layers.N." or "head."
  Extent rows;              // kOne for vectors
  Extent columns;
  Split split;
  InitialValue initial;
};

using enum Extent;
constexpr std::array<ParameterInfo, 30> kParameters = {{
    {Parameter::kEmbedTok, "tok", kVocab, kHidden, Split::kVocabularyRows, InitialValue::kNormal},
    {Parameter::kEmbedPos, "pos", kSeq, kHidden, Split::kWhole, InitialValue::kNormal},
    {Parameter::kLn1Weight, "ln1.weight", kOne, kHidden, Split::kWhole, InitialValue::kOne},
    {Parameter::kLn1Bias, "ln1.bias", kOne, kHidden, Split::kWhole, InitialValue::kZero},
    {Parameter::kQkvWeight, "qkv.weight", kQkvRows, kHidden, Split::kParts, InitialValue::kNormal},
    {Parameter::kQkvBias, "qkv.bias", kOne, kQkvRows, Split::kParts, InitialValue::kZero},
    {Parameter::kLatentWeight, "latent.weight", kLatents, kHidden, Split::kWhole, InitialValue::kNormal},
    {Parameter::kLatentNormWeight, "latent_norm.weight", kOne, kNormedLatents, Split::kWhole, InitialValue::kOne},
    {Parameter::kQueryWeight, "query.weight", kQueries, kQueryInputs, Split::kParts, InitialValue::kNormal},
    {Parameter::kKeyValueWeight, "key_value.weight", kKeyValues, kKeyValueInputs, Split::kParts, InitialValue::kNormal},
    {Parameter::kQNormWeight, "q_norm.weight", kOne, kQueryNorm, Split::kWhole, InitialValue::kOne},
    {Parameter::kKNormWeight, "k_norm.weight", kOne, kKeyNorm, Split::kWhole, InitialValue::kOne},
    {Parameter::kProjWeight, "proj.weight", kHidden, kContext, Split::kColumns, InitialValue::kNormalByDepth},
    {Parameter::kProjBias, "proj.bias", kOne, kHidden, Split::kWhole, InitialValue::kZero},
    {Parameter::kLn2Weight, "ln2.weight", kOne, kHidden, Split::kWhole, InitialValue::kOne},
    {Parameter::kLn2Bias, "ln2.bias", kOne, kHidden, Split::kWhole, InitialValue::kZero},
    {Parameter::kFc1Weight, "fc1.weight", kFc1Rows, kHidden, Split::kParts, InitialValue::kNormal},
    {Parameter::kFc1Bias, "fc1.bias", kOne, kFc1Rows, Split::kParts, InitialValue::kZero},
    {Parameter::kFc2Weight, "fc2.weight", kHidden, kFfn, Split::kColumns, InitialValue::kNormalByDepth},
    {Parameter::kFc2Bias, "fc2.bias", kOne, kHidden, Split::kWhole, InitialValue::kZero},
    {Parameter::kHeadLnWeight, "ln.weight", kOne, kHidden, Split::kWhole, InitialValue::kOne},
    {Parameter::kHeadLnBias, "ln.bias", kOne, kHidden, Split::kWhole, InitialValue::kZero},
    {Parameter::kHeadOutWeight, "out.weight", kVocab, kHidden, Split::kVocabularyRows, InitialValue::kNormal},
    {Parameter::kRouterWeight, "router.weight", kExperts, kHidden, Split::kWhole, InitialValue::kNormal},
    {Parameter::kSharedFc1Weight, "shared.fc1.weight", kSharedFc1Rows, kHidden, Split::kWhole, InitialValue::kNormal},
    {Parameter::kSharedFc2Weight, "shared.fc2.weight", kHidden, kSharedFfn, Split::kWhole, InitialValue::kNormalByDepth},
    {Parameter::kSharedGateWeight, "shared.gate.weight", kOne, kHidden, Split::kWhole, InitialValue::kNormal},
    {Parameter::kExpertsFc1Weight, "experts.fc1.weight", kExpertFc1Rows, kHidden, Split::kExperts, InitialValue::kNormal},
    {Parameter::kExpertsFc2Weight, "experts.fc2.weight", kExpertFc2Rows, kExpertFfn, Split::kExperts,
     InitialValue::kNormalByDepth},
    {Parameter::kRouterBias, "router.bias", kOne, kExperts, Split::kWhole, InitialValue::kZero},
}};
constexpr std::string_view kTokenEmbeddingName = "embed.tok";
constexpr int kParameterCount = static_cast<int>(kParameters.size());

constexpr bool InEnumOrder() {
  for (int i = 0; i < kParameterCount; ++i) {
    if (static_cast<int>(kParameters[i].parameter) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kParameters is indexed by Parameter");

const ParameterInfo& InfoOf(Parameter parameter) { return kParameters[static_cast<size_t>(parameter)]; }

// Returns the parts of an axis, in order: the number of rows of each part.
std::vector<int64_t> PartsOf(Extent extent, const ModelSpec& model) {
  const int64_t head_size = model.head_size();
  const LatentSpec& latent = model.latent;
  switch (extent) {
    case kOne: return {1};
    case kHidden: return {model.hidden};
    case kQkvRows: return {model.heads * head_size, model.key_heads() * head_size, model.key_heads() * head_size};
    case kQueryNorm: return {model.qk_norm_whole ? model.heads * head_size : head_size};
    case kKeyNorm: return {model.qk_norm_whole ? model.key_heads() * head_size : head_size};
    case kLatents: return {latent.query_rank + latent.kv_rank + model.rotary.dims};
    case kNormedLatents: return {latent.query_rank + latent.kv_rank};
    case kQueries: return {model.heads * head_size};
    case kQueryInputs: return {latent.query_rank == 0 ? model.hidden : latent.query_rank};
    case kKeyValues: return {model.heads * (head_size - model.rotary.dims), int64_t{model.heads} * latent.value_dim};
    case kKeyValueInputs: return {latent.kv_rank};
    case kContext: return {model.heads * (latent.any() ? latent.value_dim : head_size)};
    case kFc1Rows:
      if (model.family == ModelFamily::kLlama) return {model.ffn, model.ffn};
      return {model.ffn};
    case kFfn: return {model.ffn};
    case kExperts: return {model.moe.experts};
    case kExpertFc1Rows: return {int64_t{2} * model.moe.experts * model.expert_ffn()};
    case kExpertFc2Rows: return {int64_t{model.moe.experts} * model.hidden};
    case kExpertFfn: return {model.expert_ffn()};
    case kSharedFc1Rows: return {model.moe.shared_ffn, model.moe.shared_ffn};
    case kSharedFfn: return {model.moe.shared_ffn};
    case kSeq: return {model.seq};
    case kVocab: return {model.vocab};
  }
  LYNX_CHECK(false);
}

int64_t ExtentOf(Extent extent, const ModelSpec& model) {
  const std::vector<int64_t> parts = PartsOf(extent, model);
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

// True if a layer of the model has the parameter.
bool IsOf(const ModelSpec& model, int32_t layer, Parameter parameter) {
  const bool gpt = model.family == ModelFamily::kGpt;
  switch (parameter) {
    case Parameter::kQkvWeight: return !model.latent.any();
    case Parameter::kQkvBias: return gpt || model.qkv_bias;
    case Parameter::kLatentWeight:
    case Parameter::kLatentNormWeight:
    case Parameter::kQueryWeight:
    case Parameter::kKeyValueWeight: return model.latent.any();
    case Parameter::kQNormWeight:
    case Parameter::kKNormWeight: return model.qk_norm;
    case Parameter::kFc1Weight:
    case Parameter::kFc2Weight: return !model.HasExpertsIn(layer);
    case Parameter::kRouterWeight:
    case Parameter::kExpertsFc1Weight:
    case Parameter::kExpertsFc2Weight: return model.HasExpertsIn(layer);
    case Parameter::kSharedFc1Weight:
    case Parameter::kSharedFc2Weight: return model.HasExpertsIn(layer) && model.moe.shared_ffn > 0;
    case Parameter::kSharedGateWeight: return model.HasExpertsIn(layer) && model.moe.shared_gate;
    case Parameter::kRouterBias: return model.HasExpertsIn(layer) && model.moe.router_bias;
    case Parameter::kEmbedPos:
    case Parameter::kLn1Bias:
    case Parameter::kProjBias:
    case Parameter::kLn2Bias:
    case Parameter::kFc1Bias:
    case Parameter::kFc2Bias:
    case Parameter::kHeadLnBias: return gpt;
    default: return true;
  }
}

// A range of an axis. RunOf returns the range that rank `r` has if an axis of length `total` is divided into shards of length
// `shard`.
struct Run {
  int64_t begin = 0, length = 0;
};
Run RunOf(int64_t total, int64_t shard, int32_t r) {
  const int64_t begin = std::min(total, shard * r);
  return {begin, std::min(total, begin + shard) - begin};
}

// A rank of a stage, as far as it decides which parameters the rank has.
struct RankPlace {
  int32_t tp = 1, tp_rank = 0;
  int32_t ep = 1, expert_place = 0;  // the place in the expert group
};

// Sets the pieces and the count of the slot. `parts`: the lengths of the parts of the parameter's rows, or of a vector.
void Divide(Split split, const std::vector<int64_t>& parts, const RankPlace& place, ParameterSlot& slot) {
  const int32_t tp = place.tp, r = place.tp_rank;
  const int64_t rows = slot.global_rows, columns = slot.global_columns;
  switch (split) {
    case Split::kWhole:
      slot.pieces = {{0, rows, 0, columns, 0}};
      slot.count = rows * columns;
      return;
    case Split::kColumns: {
      const Run run = RunOf(columns, columns / tp, r);
      slot.pieces = {{0, rows, run.begin, run.length, 0}};
      slot.count = rows * run.length;
      return;
    }
    case Split::kExperts:
      slot.pieces = {{rows / place.ep * place.expert_place, rows / place.ep, 0, columns, 0}};
      slot.count = rows / place.ep * columns;
      return;
    case Split::kVocabularyRows: {
      const int64_t shard = (rows + tp - 1) / tp;
      const Run run = RunOf(rows, shard, r);
      slot.pieces = {{run.begin, run.length, 0, columns, 0}};
      slot.count = shard * columns;
      return;
    }
    case Split::kParts: {
      int64_t part_begin = 0;
      for (const int64_t part : parts) {
        const Run run = RunOf(part, part / tp, r);
        const int64_t begin = part_begin + run.begin;
        ParameterPiece piece =
            slot.vector ? ParameterPiece{0, 1, begin, run.length, 0} : ParameterPiece{begin, run.length, 0, columns, 0};
        piece.offset = slot.count;
        slot.count += piece.rows * piece.columns;
        slot.pieces.push_back(piece);
        part_begin += part;
      }
      return;
    }
  }
}

std::string NameOf(const ParameterInfo& info, int32_t layer) {
  const std::string suffix(info.suffix);
  if (layer == kEmbeddingLayer) return absl::StrCat("embed.", suffix);
  if (layer == kHeadLayer) return absl::StrCat("head.", suffix);
  return absl::StrCat("layers.", layer, ".", suffix);
}

// True if both slots belong to the same section. A section is one of these: the parameters of a layer without its experts, the
// parameters of a layer's experts, or the biases of all routers. The slots of a section follow each other.
bool SameSection(const ParameterSlot& a, const ParameterSlot& b) {
  return a.by_load || b.by_load ? a.by_load && b.by_load : a.layer == b.layer && a.expert == b.expert;
}

// Returns the number of ranks that divide the section of a slot.
int64_t SharesOf(const StageContext& context, const ParameterSlot& slot) {
  if (slot.by_load) return 1;
  return slot.expert ? ExpertShares(context) : OptimizerShares(context);
}

// Returns the number of elements of a section, with its padding. `slot`: any slot of the section. `elements`: their number
// without padding.
int64_t PaddedSection(const StageContext& context, const ParameterSlot& slot, int64_t elements) {
  if (slot.by_load) return elements;
  return slot.expert ? ShareableExperts(context, elements) : Shareable(context, elements);
}

// Returns the offset after the section that ends with the last slot.
int64_t EndOfSection(const StageContext& context, const std::vector<ParameterSlot>& slots) {
  const ParameterSlot& last = slots.back();
  int64_t begin = last.offset;
  for (auto slot = slots.rbegin(); slot != slots.rend() && SameSection(*slot, last); ++slot) begin = slot->offset;
  return begin + PaddedSection(context, last, last.offset + last.count - begin);
}

void AppendLayer(const StageContext& context, const RankPlace& place, int32_t layer, Parameter first, Parameter last,
                 std::vector<ParameterSlot>& slots) {
  for (int i = static_cast<int>(first); i <= static_cast<int>(last); ++i) {
    const ParameterInfo& info = kParameters[static_cast<size_t>(i)];
    if (!IsOf(context.model, layer, info.parameter)) continue;
    const bool tied = info.parameter == Parameter::kHeadOutWeight && context.model.tied_embeddings;
    if (tied && context.has_embedding()) continue;
    ParameterSlot slot;
    slot.parameter = info.parameter;
    slot.layer = layer;
    slot.name = NameOf(info, layer);
    slot.whole_name = tied ? std::string(kTokenEmbeddingName) : slot.name;
    slot.global_rows = ExtentOf(info.rows, context.model);
    slot.global_columns = ExtentOf(info.columns, context.model);
    slot.vector = info.rows == kOne;
    slot.decays = !slot.vector;
    slot.replicated = info.split == Split::kWhole;
    slot.by_heads =
        info.columns == kQueryNorm || info.columns == kKeyNorm || info.rows == kLatents || info.columns == kNormedLatents;
    slot.copy = tied;
    slot.expert = info.split == Split::kExperts;
    slot.by_load = info.parameter == Parameter::kRouterBias;
    slot.offset = slots.empty() ? 0 : slots.back().offset + slots.back().count;
    if (!slots.empty() && !SameSection(slots.back(), slot)) slot.offset = EndOfSection(context, slots);
    slot.share_offset = slot.offset;
    Divide(info.split, PartsOf(slot.vector ? info.columns : info.rows, context.model), place, slot);
    slots.push_back(std::move(slot));
  }
}

// Hashes a parameter's name with FNV-1a (64 bits). The hash is a part of the key of its initial values. The function must never
// change, because the initial weights of every model would change too.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// Returns the position of a layer in ModelState::index_: 0 for the embedding, 1 for the head, then the transformer layers of
// each slice in turn.
int32_t LayerPosition(const StageContext& context, int32_t layer) {
  if (layer == kEmbeddingLayer) return 0;
  if (layer == kHeadLayer) return 1;
  int32_t position = 2;
  for (const StageSlice& slice : context.slices) {
    if (layer >= slice.first_layer && layer < slice.end_layer) return position + layer - slice.first_layer;
    position += slice.layers();
  }
  LYNX_CHECK(!"a layer of another rank");
  return -1;
}

int32_t LayerPositions(const StageContext& context) {
  int32_t positions = 2;
  for (const StageSlice& slice : context.slices) positions += slice.layers();
  return positions;
}

}  // namespace

StateIndex StateIndexOf(const StageContext& context, int32_t tp_rank, int32_t data_index) {
  if (!context.model.moe.any()) return {.data = data_index};
  // In a bidirectional pipeline, ranks of two stages hold the same weights; CheckEngineRuns refuses that with experts.
  const int32_t number = data_index * context.layout.tp + tp_rank;
  LYNX_CHECK(number < RanksOfStage(context.layout));
  return {.data = data_index, .expert = number / context.layout.ep};
}

std::vector<ParameterSlot> ParameterSlotsOf(const StageContext& context, int32_t tp_rank, int32_t data_index) {
  const ModelSpec& model = context.model;
  const int32_t tp = context.layout.tp;
  LYNX_CHECK(tp >= 1 && tp_rank >= 0 && tp_rank < tp && data_index >= 0);
  LYNX_CHECK(model.heads % tp == 0 && (model.head_dim > 0 || model.hidden % model.heads == 0));
  LYNX_CHECK(model.heads % model.key_heads() == 0 && model.key_heads() % tp == 0);
  LYNX_CHECK(!model.moe.any() || model.moe.experts % context.layout.ep == 0);
  LYNX_CHECK(!model.HasDenseBlock() || model.ffn % tp == 0);
  const RankPlace place{
      .tp = tp, .tp_rank = tp_rank, .ep = context.layout.ep, .expert_place = (data_index * tp + tp_rank) % context.layout.ep};
  std::vector<ParameterSlot> slots;
  for (const StageSlice& slice : context.slices) {
    if (slice.has_embedding) {
      AppendLayer(context, place, kEmbeddingLayer, Parameter::kEmbedTok, Parameter::kEmbedPos, slots);
    }
    for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
      AppendLayer(context, place, layer, Parameter::kLn1Weight, Parameter::kFc2Bias, slots);
      AppendLayer(context, place, layer, Parameter::kRouterWeight, Parameter::kExpertsFc2Weight, slots);
    }
    if (slice.has_head) {
      AppendLayer(context, place, kHeadLayer, Parameter::kHeadLnWeight, Parameter::kHeadOutWeight, slots);
    }
  }
  for (const StageSlice& slice : context.slices) {
    for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
      AppendLayer(context, place, layer, Parameter::kRouterBias, Parameter::kRouterBias, slots);
    }
  }
  return slots;
}

namespace {

// Appends the elements [first, last) of a piece as up to three new pieces: the end of a row, then whole rows, then the
// beginning of a row.
void AppendPart(const ParameterPiece& piece, int64_t first, int64_t last, std::vector<ParameterPiece>& parts) {
  while (first < last) {
    const int64_t row = first / piece.columns, column = first % piece.columns;
    const bool whole_rows = column == 0 && last - first >= piece.columns;
    const int64_t rows = whole_rows ? (last - first) / piece.columns : 1;
    const int64_t columns = whole_rows ? piece.columns : std::min(piece.columns - column, last - first);
    const int64_t offset = parts.empty() ? 0 : parts.back().offset + parts.back().rows * parts.back().columns;
    parts.push_back({piece.row + row, rows, piece.column + column, columns, offset});
    first += rows * columns;
  }
}

// Returns the part of a slot whose elements are in [begin, end) of the arrays.
ParameterSlot PartOf(const ParameterSlot& slot, int64_t begin, int64_t end) {
  ParameterSlot part = slot;
  part.pieces.clear();
  part.offset = std::max(slot.offset, begin);
  for (const ParameterPiece& piece : slot.pieces) {
    const int64_t at = slot.offset + piece.offset;
    AppendPart(piece, std::max<int64_t>(0, begin - at), std::min(piece.rows * piece.columns, end - at), part.pieces);
  }
  part.count = part.pieces.empty() ? 0 : part.pieces.back().offset + part.pieces.back().rows * part.pieces.back().columns;
  return part;
}

}  // namespace

std::vector<ParameterSlot> UpdatedSlots(const StageContext& context, const std::vector<ParameterSlot>& slots,
                                        const StateIndex& index) {
  if (OptimizerShares(context) == 1 && ExpertShares(context) == 1) return slots;
  std::vector<ParameterSlot> updated;
  int64_t share_begin = 0;  // begin of a section's share, in arrays of shares only
  for (size_t first = 0, next; first < slots.size(); first = next) {
    for (next = first; next < slots.size() && SameSection(slots[next], slots[first]);) ++next;
    const bool expert = slots[first].expert;
    const int64_t shares = SharesOf(context, slots[first]), begin = slots[first].offset;
    const int64_t share = PaddedSection(context, slots[first], slots[next - 1].offset + slots[next - 1].count - begin) / shares;
    const int64_t share_at = begin + share * (shares == 1 ? 0 : expert ? index.expert : index.data);
    for (size_t i = first; i < next; ++i) {
      ParameterSlot part = shares == 1 ? slots[i] : PartOf(slots[i], share_at, share_at + share);
      if (part.count == 0) continue;
      part.share_offset = share_begin + part.offset - share_at;
      updated.push_back(std::move(part));
    }
    share_begin += share;
  }
  return updated;
}

namespace {

// The number of elements of the arrays that contain everything, and of those that contain only shares.
struct ArraySizes {
  int64_t all = 0, shares = 0;
};

ArraySizes SizesOf(const StageContext& context, const std::vector<ParameterSlot>& slots) {
  ArraySizes sizes;
  for (size_t first = 0, next; first < slots.size(); first = next) {
    for (next = first; next < slots.size() && SameSection(slots[next], slots[first]);) ++next;
    const ParameterSlot& last = slots[next - 1];
    const int64_t elements = PaddedSection(context, last, last.offset + last.count - slots[first].offset);
    sizes.all += elements;
    sizes.shares += elements / SharesOf(context, last);
  }
  return sizes;
}

}  // namespace

void FillInitialWeights(const ParameterSlot& slot, const ModelSpec& model, uint64_t seed, std::span<float> weights) {
  const InitialValue initial = InfoOf(slot.parameter).initial;
  if (initial == InitialValue::kZero) return;
  const uint64_t key = Mix64(seed ^ HashName(slot.whole_name));
  double deviation = 0.02;
  if (initial == InitialValue::kNormalByDepth) deviation /= std::sqrt(2.0 * model.layers);
  for (const ParameterPiece& piece : slot.pieces) {
    const std::span<float> values =
        weights.subspan(static_cast<size_t>(piece.offset), static_cast<size_t>(piece.rows * piece.columns));
    if (initial == InitialValue::kOne) {
      std::fill(values.begin(), values.end(), 1.0f);
      continue;
    }
    InParts(piece.rows, piece.rows * piece.columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const std::span<float> out =
            values.subspan(static_cast<size_t>(row * piece.columns), static_cast<size_t>(piece.columns));
        FillNormal(key, deviation, (piece.row + row) * slot.global_columns + piece.column, out);
      }
    });
  }
}

absl::StatusOr<ModelState> ModelState::Create(const StageContext& context, int32_t tp_rank, int32_t data_index, uint64_t seed,
                                              Backend& backend) {
  ModelState state;
  state.backend_ = &backend;
  state.context_ = context;
  state.slots_ = ParameterSlotsOf(context, tp_rank, data_index);
  state.updated_ = UpdatedSlots(context, state.slots_, StateIndexOf(context, tp_rank, data_index));
  const ArraySizes sizes = SizesOf(context, state.slots_);
  const int64_t elements = sizes.all;
  const Bytes bytes(elements * static_cast<int64_t>(sizeof(float)));
  const Bytes share(sizes.shares * static_cast<int64_t>(sizeof(float)));
  const std::string of_rank = absl::StrCat(" of stage ", context.pipeline_rank, ", tensor-parallel rank ", tp_rank);
  const bool rounds = context.model.dtype == DataType::kBfloat16;
  LYNX_ASSIGN_OR_RETURN(state.weights_, backend.Allocate(rounds ? share : bytes, "weights" + of_rank));
  LYNX_ASSIGN_OR_RETURN(state.gradients_, backend.Allocate(bytes, "gradients" + of_rank));
  LYNX_ASSIGN_OR_RETURN(state.first_moments_, backend.Allocate(share, "first AdamW moments" + of_rank));
  LYNX_ASSIGN_OR_RETURN(state.second_moments_, backend.Allocate(share, "second AdamW moments" + of_rank));

  state.index_.assign(static_cast<size_t>(LayerPositions(context) * kParameterCount), -1);
  for (size_t i = 0; i < state.slots_.size(); ++i) {
    const ParameterSlot& slot = state.slots_[i];
    state.index_[static_cast<size_t>(LayerPosition(context, slot.layer) * kParameterCount + static_cast<int>(slot.parameter))] =
        static_cast<int32_t>(i);
  }
  if (HoldsTiedEmbedding(context)) {
    const auto index_of = [&](int32_t layer, Parameter parameter) -> int32_t& {
      return state.index_[static_cast<size_t>(LayerPosition(context, layer) * kParameterCount + static_cast<int>(parameter))];
    };
    index_of(kHeadLayer, Parameter::kHeadOutWeight) = index_of(kEmbeddingLayer, Parameter::kEmbedTok);
  }
  if (rounds) {
    // The backend allocates memory in words of 4 bytes.
    const Bytes words((elements * static_cast<int64_t>(sizeof(Bfloat16)) + 3) / 4 * 4);
    LYNX_ASSIGN_OR_RETURN(const std::span<float> memory, backend.Allocate(words, "bfloat16 weights" + of_rank));
    state.rounded_weights_ = {reinterpret_cast<Bfloat16*>(memory.data()), static_cast<size_t>(elements)};
  }
  for (const ParameterSlot& slot : state.updated_) {
    LYNX_ASSIGN_OR_RETURN(HostView view,
                          HostView::Fetch({state.UpdatedWeight(slot), static_cast<size_t>(slot.count)}, backend));
    FillInitialWeights(slot, context.model, seed, view.floats());
    view.Store();
  }
  state.RoundWeights(backend);
  return state;
}

const ParameterSlot& ModelState::Slot(int32_t layer, Parameter parameter) const {
  const int32_t i = index_[static_cast<size_t>(LayerPosition(context_, layer) * kParameterCount + static_cast<int>(parameter))];
  LYNX_CHECK(i >= 0);
  return slots_[static_cast<size_t>(i)];
}

const ParameterSlot* ModelState::shared_embedding() const {
  if (!context_.model.tied_embeddings || context_.has_embedding() == context_.has_head()) return nullptr;
  return context_.has_embedding() ? &Slot(kEmbeddingLayer, Parameter::kEmbedTok) : &Slot(kHeadLayer, Parameter::kHeadOutWeight);
}

template <>
const float* ModelState::WeightOfOps(int32_t layer, Parameter parameter) const {
  return weights_.data() + Slot(layer, parameter).offset;
}

template <>
const Bfloat16* ModelState::WeightOfOps(int32_t layer, Parameter parameter) const {
  LYNX_CHECK(!rounded_weights_.empty());
  return rounded_weights_.data() + Slot(layer, parameter).offset;
}

void ModelState::RoundWeights(Backend& backend) {
  if (rounded_weights_.empty()) return;
  for (const ParameterSlot& slot : updated_) {
    if (slot.by_load) continue;  // routers read it in fp32
    backend.Round(UpdatedWeight(slot), slot.count, rounded_weights_.data() + slot.offset);
  }
}

std::vector<AdamWTensor> ModelState::Updates() {
  std::vector<AdamWTensor> updates;
  for (const ParameterSlot& slot : updated_) {
    if (slot.by_load) continue;
    updates.push_back({.count = slot.count,
                       .gradient = gradients_.data() + slot.offset,
                       .w = UpdatedWeight(slot),
                       .m = first_moments_.data() + slot.share_offset,
                       .v = second_moments_.data() + slot.share_offset,
                       .rounded = rounded_weights_.empty() ? nullptr : rounded_weights_.data() + slot.offset,
                       .decays = slot.decays});
  }
  return updates;
}

Bytes ModelState::bytes() const {
  return Bytes(static_cast<int64_t>(weights_.size_bytes() + gradients_.size_bytes() + first_moments_.size_bytes() +
                                    second_moments_.size_bytes() + rounded_weights_.size_bytes()));
}

float* ModelState::Gradient(int32_t layer, Parameter parameter) { return gradients_.data() + Slot(layer, parameter).offset; }

ModelState::Range ModelState::RangeOf(int32_t layer, bool expert) const {
  Range range;
  for (const ParameterSlot& slot : slots_) {
    if (slot.layer != layer || slot.expert != expert || slot.by_load) continue;
    if (range.count == 0) range.begin = slot.offset;
    range.count = slot.offset + slot.count - range.begin;
  }
  LYNX_CHECK(range.count > 0);
  range.count = expert ? ShareableExperts(context_, range.count) : Shareable(context_, range.count);
  return range;
}

ModelState::Range ModelState::LayerRange(int32_t layer) const { return RangeOf(layer, /*expert=*/false); }
ModelState::Range ModelState::ExpertRange(int32_t layer) const { return RangeOf(layer, /*expert=*/true); }

ModelState::Range ModelState::LoadsRange() const {
  Range range;
  for (const ParameterSlot& slot : slots_) {
    if (!slot.by_load) continue;
    if (range.count == 0) range.begin = slot.offset;
    range.count += slot.count;
  }
  return range;
}

float* ModelState::RouterBias(int32_t layer) {
  if (!context_.model.moe.router_bias) return nullptr;
  const ParameterSlot& slot = Slot(layer, Parameter::kRouterBias);
  // The biases are the last ones of both kinds of arrays, and no rank shares them out.
  const bool shared = !rounded_weights_.empty();
  const int64_t from_end = static_cast<int64_t>(gradients_.size()) - slot.offset;
  return shared ? weights_.data() + static_cast<int64_t>(weights_.size()) - from_end : weights_.data() + slot.offset;
}

}  // namespace lynx::worker
