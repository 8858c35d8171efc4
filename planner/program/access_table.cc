#include "planner/program/access_table.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {

// For two actions of the same kind and segment: true if their accesses differ only by the layer and the microbatch. The top
// layer of a slice counts as different, because its output may have the key of the head.
bool AccessTable::Alike(const Action& a, const Action& b) const {
  if (a.stage != b.stage || a.ops != b.ops || a.tensors != b.tensors) return false;
  if ((a.microbatch == kNoMicrobatch) != (b.microbatch == kNoMicrobatch)) return false;
  if (a.layer < 0 || b.layer < 0) return a.layer == b.layer;
  if (a.layer == b.layer) return true;
  if (context_.IsDenseLayer(a.layer) != context_.IsDenseLayer(b.layer)) return false;
  const StageSlice* slice = context_.FindSlice(a.stage);
  LYNX_CHECK(slice != nullptr);
  return a.layer != slice->top_layer() && b.layer != slice->top_layer();
}

AccessTable::Entry AccessTable::Find(const Action& action) const {
  Entry entry{.action = action, .accesses = AccessesOf(action, context_), .of_layer = {}, .of_microbatch = {}};
  for (const Access& access : entry.accesses) {
    const BufferKey& key = access.key;
    // The key of kGrad does not change with the layer, because one gradient buffer serves all layers.
    entry.of_layer.push_back(action.layer >= 0 && key.tensor != Tensor::kGrad &&
                             (key.layer == action.layer || key.layer == action.layer + 1));
    entry.of_microbatch.push_back(action.microbatch != kNoMicrobatch && key.microbatch == action.microbatch);
  }
  return entry;
}

std::span<const Access> AccessTable::Of(const Action& action) {
  std::vector<Entry>& entries =
      entries_[static_cast<size_t>(action.kind) * kSegmentCount + static_cast<size_t>(action.segment)];
  auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return Alike(e.action, action); });
  if (entry == entries.end()) entry = entries.insert(entry, Find(action));
  const int32_t layers = action.layer - entry->action.layer;
  for (size_t i = 0; i < entry->accesses.size(); ++i) {
    BufferKey& key = entry->accesses[i].key;
    if (entry->of_layer[i]) key.layer += layers;
    if (entry->of_microbatch[i]) key.microbatch = action.microbatch;
  }
  entry->action = action;
  return entry->accesses;
}

}  // namespace lynx
