// ParallelLayout: how ranks divide a model, and the numbering of ranks. Pure values.
//
// Rank order, innermost first: tensor, pipeline stage, data. So the ranks of one tensor-parallel group are
// neighbours (and land on one node), and pipeline neighbours are tp ranks apart.
#ifndef LYNX_PLANNER_LAYOUT_H_
#define LYNX_PLANNER_LAYOUT_H_

#include <cstdint>
#include <string>

namespace lynx {

struct ParallelLayout {
  int32_t tp = 1;
  int32_t pp = 1;
  int32_t dp = 1;

  constexpr int32_t ranks() const { return tp * pp * dp; }
  bool operator==(const ParallelLayout&) const = default;
};

struct RankCoordinates {
  int32_t tp = 0;
  int32_t stage = 0;
  int32_t dp = 0;
  bool operator==(const RankCoordinates&) const = default;
};

constexpr RankCoordinates CoordinatesOf(const ParallelLayout& l, int32_t rank) {
  return {rank % l.tp, rank / l.tp % l.pp, rank / (l.tp * l.pp)};
}
constexpr int32_t RankOf(const ParallelLayout& l, const RankCoordinates& c) {
  return (c.dp * l.pp + c.stage) * l.tp + c.tp;
}

// "tp2 pp2 dp1"
std::string LayoutText(const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_LAYOUT_H_
