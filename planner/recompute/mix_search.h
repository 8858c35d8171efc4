// MixSearch finds good mixes of points for the layers of a stage: HEU's estimates, and the mixes whose exact value HEU computes
// (planner/recompute/stage_heu.h). Only for stage_heu.cc. Pure; not thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_MIX_SEARCH_H_
#define LYNX_PLANNER_RECOMPUTE_MIX_SEARCH_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "planner/recompute/stage_heu.h"

namespace lynx {

// One point for each layer of a stage: `fast_count` inner layers use the point `fast`, one inner layer uses `filler`, the other
// inner layers use `slow`, and the top layer uses `top`.
struct StageHeu::Mix {
  const ParetoPoint* slow = nullptr;
  const ParetoPoint* fast = nullptr;
  const ParetoPoint* filler = nullptr;
  const ParetoPoint* top = nullptr;
  int64_t fast_count = 0;
  Nanos exposed;
  Bytes bytes;

  auto key() const { return std::tuple(exposed, bytes); }
};

// Finds the mixes with the best estimates. An estimate assumes that a layer's neighbours use the same point as the layer.
class StageHeu::MixSearch {
 public:
  // Which pairs of points are tried. kHull: only one pair of neighbours on the hull, which finds a good mix much faster.
  enum class Pairs : uint8_t { kAll, kHull };

  // Finds at most `count` mixes of `layers` layers that take at most `budget` bytes.
  MixSearch(const StageHeu& heu, int32_t layers, Bytes budget, size_t count, Pairs pairs);

  const std::vector<Mix>& best() const { return best_; }

 private:
  bool full() const { return best_.size() == count_; }
  // Only a mix with less exposed time than this is worth a search: it is better than the best mix by more than a thousandth.
  Nanos WorthLooking() const { return best_.front().exposed - best_.front().exposed / 1000; }
  Bytes LeastHeld(const Level& level) const {
    return inner_layers_ == 0 ? Bytes(0) : level.inner.front()->held * inner_layers_;
  }
  // Searches the mixes whose top layer has one of the points [begin, end) of level.top. Does nothing if the first of these
  // points leaves too little memory for the inner layers. `room`: the budget without the level's transient memory.
  void Search(const Level& level, Bytes room, size_t begin, size_t end);
  void TryPairs(const Level& level, const ParetoPoint& top, Bytes left);
  void TryHull(const Level& level, const ParetoPoint& top, Bytes left);
  void TryPair(const Level& level, const ParetoPoint& top, const ParetoPoint& slow, const ParetoPoint& fast, Bytes slack);
  int64_t FastLayers(Bytes step, Bytes slack) const;
  void Add(const Mix& mix);

  const int32_t inner_layers_;
  const size_t count_;
  const Pairs pairs_;
  std::vector<Mix> best_;  // the best mix comes first
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_MIX_SEARCH_H_
