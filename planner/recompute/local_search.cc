#include "planner/recompute/local_search.h"

#include <map>
#include <optional>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

// Maximum number of exchanges.
constexpr int kMaxRounds = 64;

class Improvement {
 public:
  Improvement(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
              int32_t copy_slowdown_permille)
      : problem_(problem), others_(others), slowdown_(copy_slowdown_permille), policy_(std::move(policy)) {
    for (size_t l = 0; l < policy_.layers.size(); ++l) {
      const std::optional<Choice> choice = ChoiceOf(policy_.layers[l], PlaceIn(l));
      LYNX_CHECK(choice.has_value());
      uses_.push_back(choice->use);
    }
    worth_ = WorthOf(uses_);
  }

  StagePolicy Run() && {
    for (int round = 0; round < kMaxRounds && worth_.exposed.value > 0 && Exchange(); ++round) {}
    return std::move(policy_);
  }

 private:
  struct Choice {
    LayerPolicy policy;
    LayerUse use;
  };
  struct Worth {
    Nanos exposed;  // exposed time, with the slowdown by copies
    Bytes bytes, host;

    auto operator<=>(const Worth&) const = default;
  };

  LayerPlace PlaceIn(size_t layer) const { return PlaceOf(layer, policy_.layers.size()); }

  std::optional<Choice> ChoiceOf(const LayerPolicy& policy, LayerPlace place) const {
    const absl::StatusOr<LayerUse> use = UseOf(problem_, policy, place);
    if (!use.ok()) return std::nullopt;
    return Choice{policy, *use};
  }

  Worth WorthOf(const std::vector<LayerUse>& uses) const {
    const StageValue value = Combine(problem_, uses);
    Nanos copies;
    for (const LayerUse& use : uses) copies += use.copy_out + use.copy_in;
    return {value.exposed + copies * (slowdown_ - 1000) / slowdown_, value.bytes(), value.host};
  }
  bool Fits(const Worth& worth) const { return worth.bytes <= problem_.budget && worth.host <= problem_.host_budget; }

  // The other policies and placements that are tried for a layer that has `policy`.
  const std::vector<Choice>& ChoicesFor(const LayerPolicy& policy, LayerPlace place) {
    const auto emplaced = choices_.try_emplace({place, policy});
    std::vector<Choice>& choices = emplaced.first->second;
    if (!emplaced.second) return choices;
    const auto add = [&](const LayerPolicy& other) {
      if (other == policy) return;
      if (std::optional<Choice> choice = ChoiceOf(other, place)) choices.push_back(*std::move(choice));
    };
    for (const LayerPolicy& other : others_) add(other);
    for (int i = 0; i < static_cast<int>(problem_.items.size()); ++i) {
      const PlacementSet possible = PossiblePlacements(problem_, i, place);
      for (int p = 0; p < kPlacementCount; ++p) {
        if (!Contains(possible, static_cast<Placement>(p))) continue;
        LayerPolicy changed = policy;
        changed[static_cast<size_t>(i)] = static_cast<Placement>(p);
        add(changed);
      }
    }
    return choices;
  }

  // Makes the best exchange in one layer. Returns false if no exchange is an improvement. Among consecutive layers with the
  // same policy, only the first and the last are tried. The top layer and the layer below it are always tried.
  bool Exchange() {
    Worth best = worth_;
    size_t at = 0;
    const Choice* with = nullptr;
    std::vector<LayerUse> uses = uses_;
    const size_t layers = policy_.layers.size();
    for (size_t l = 0; l < layers; ++l) {
      const LayerPolicy& policy = policy_.layers[l];
      const bool alike = l > 0 && l + 2 < layers && policy_.layers[l - 1] == policy && policy_.layers[l + 1] == policy;
      if (alike) continue;
      for (const Choice& choice : ChoicesFor(policy, PlaceIn(l))) {
        uses[l] = choice.use;
        const Worth worth = WorthOf(uses);
        if (worth >= best || !Fits(worth)) continue;
        best = worth;
        at = l;
        with = &choice;
      }
      uses[l] = uses_[l];
    }
    if (with == nullptr) return false;
    uses_[at] = with->use;
    policy_.layers[at] = with->policy;
    worth_ = best;
    return true;
  }

  const RecomputeProblem& problem_;
  const std::vector<LayerPolicy>& others_;
  const int32_t slowdown_;
  StagePolicy policy_;
  std::vector<LayerUse> uses_;
  Worth worth_;
  std::map<std::pair<LayerPlace, LayerPolicy>, std::vector<Choice>> choices_;
};

}  // namespace

StagePolicy Improved(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
                     int32_t copy_slowdown_permille) {
  return Improvement(problem, std::move(policy), others, copy_slowdown_permille).Run();
}

}  // namespace lynx
