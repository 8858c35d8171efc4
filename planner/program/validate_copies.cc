// See validate_copies.h.
#include "planner/program/validate_copies.h"

#include "absl/strings/str_cat.h"

namespace lynx {

using enum ActionKind;

// Only recomputable tensors, and tensors that are made together with them (MadeWith), can be offloaded.
std::optional<std::string> CopyRules::CheckTensors(const Action& action) const {
  const LayerGraph& graph = LayerGraph::Of(context_.ShapeOfLayer(action.layer));
  TensorSet movable = 0;
  for (const Tensor tensor : graph.recomputable()) {
    for (const Tensor with : graph.MadeWith(tensor)) movable |= Bit(with);
  }
  if (LayerTypeOf(action.layer) == LayerType::kTransformer && (action.tensors & ~movable) == 0) return std::nullopt;
  return "only what a transformer layer's ops make between its inputs and its result goes to the host";
}

std::optional<std::string> CopyRules::FollowCopy(const Action& action, const BufferKey& key) {
  const auto it = states_.find(key);
  switch (action.kind) {
    case kOffloadStart:
      if (it != states_.end()) return absl::StrCat(BufferKeyText(key), " goes to the host once");
      states_[key] = {Place::kGoing, action};
      return std::nullopt;
    case kReloadStart:
      if (it == states_.end() || it->second.place != Place::kOnHost) {
        return absl::StrCat(BufferKeyText(key), " is not in the host's memory");
      }
      it->second.place = Place::kBack;
      return std::nullopt;
    default:  // waits: the validator has already matched them with their starts
      if (action.kind == kOffloadWait) it->second.place = Place::kOnHost;
      return std::nullopt;
  }
}

std::optional<std::string> CopyRules::Follow(const Action& action) {
  const bool copy = InfoOf(action.kind).group == Group::kHost;
  if (copy) {
    if (auto broken = CheckTensors(action)) return broken;
  } else if (states_.empty()) {
    return std::nullopt;
  }
  for (const Access& access : AccessesOf(action, context_)) {
    if (copy) {
      if (auto broken = FollowCopy(action, access.key)) return broken;
      continue;
    }
    const auto it = states_.find(access.key);
    if (it == states_.end() || it->second.place != Place::kOnHost) continue;
    return absl::StrCat("touches ", BufferKeyText(access.key), ", which is in the host's memory since ",
                        ActionText(it->second.offload));
  }
  return std::nullopt;
}

std::optional<std::string> CopyRules::AtEnd() const {
  for (const auto& [key, state] : states_) {
    if (state.place != Place::kOnHost) continue;
    return absl::StrCat(BufferKeyText(key), " is still in the host's memory, where ", ActionText(state.offload), " has put it");
  }
  return std::nullopt;
}

}  // namespace lynx
