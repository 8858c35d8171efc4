// HEU is the heuristic that schedules recomputation. For one layer, it finds the Pareto front of memory against exposed time,
// assuming that the neighbouring layers have the same policy (layer_pareto.h). For a stage, it mixes the points of this front
// over the stage's identical layers: this uses memory that a single policy for all layers would leave unused. Then it chooses
// the placements of each layer's late items again, this time with the layer's real neighbours. docs/measurements/planner.md
// says how long HEU runs. docs/formulation.md says how much worse its results are than those of OPT (opt/stage_opt.h).
//
// Results that do not depend on the stage are computed once, and all stages of a pipeline share them (ForStage). Not
// thread-safe: stages that share results fill the same cache.
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

struct ParetoPoint {
  LayerPolicy policy{};
  ItemSet late_items = 0;
  LayerUse use;
  Nanos kept_exposed;  // the part of use.exposed that is not caused by late items
  // Values if the neighbouring layers use the same point, and if the layer has an equal share of the stall and of the copy
  // times.
  Bytes held;
  Bytes transient;
  Nanos exposed;
};

// Returns all points that no other point dominates in `held`, `transient` and `exposed` together. They are in the order of
// `exposed`, then `held`. If points are equal in all three, only one of them is returned. There is at least one point.
// Offloading takes at most the layer's equal share of the host's memory.
std::vector<ParetoPoint> LayerPareto(const RecomputeProblem& problem, LayerPlace place);

class StageHeu {
 public:
  // `problem` must be valid. Its number of layers determines a layer's share of the stall, the copy time and the host's memory.
  // The budget of the problem is not used.
  explicit StageHeu(const RecomputeProblem& problem);
  StageHeu(const StageHeu&) = delete;
  StageHeu& operator=(const StageHeu&) = delete;
  StageHeu(StageHeu&&) = default;
  StageHeu& operator=(StageHeu&&) = default;

  // Solves the same problem for another stage of the pipeline. If there is no stall and no offloading, and at least two
  // microbatches are in flight, this is far cheaper than to construct a StageHeu from the problem. Otherwise only the
  // placements of late items are shared. A problem for one microbatch in flight has no forward windows. So its results cannot
  // be used for stages with more microbatches in flight, and the results for more microbatches cannot be used for one.
  StageHeu ForStage(int32_t layers, int32_t in_flight, Nanos stall) const;

  // Returns a policy with little exposed time and bytes() <= budget. nullopt: HEU finds no policy that fits. If the problem has
  // a stall or offloading, `layers` must be the number of layers of the problem.
  std::optional<StageSolution> Best(int32_t layers, Bytes budget) const;
  // A quick estimate of Best's value. A mix gives each layer one point of the Pareto front. The estimate is the value of the
  // best mix, computed as if the neighbours of each layer used the same point as the layer; its `held` includes the transient
  // memory. If no mix fits in `budget`, the estimate is the value of the policy with the least memory.
  StageValue Estimate(int32_t layers, Bytes budget) const;
  // True if, by the estimate, some mix takes at most `budget` bytes. Then Estimate also returns the value of such a mix.
  bool Estimates(int32_t layers, Bytes budget) const;
  // The memory of the policy with the least memory that HEU finds. For any budget of at least this memory, Best finds a policy.
  Bytes LeastBytes(int32_t layers) const;

 private:
  StageHeu() = default;
  void FindFronts();
  void MakeLevels();

  // The points whose transient memory is at most `transient`, in the order of held memory. A point is left out if another point
  // dominates it in held memory and exposed time. If `inner` is empty, the level serves only stages with one layer.
  struct Level {
    Bytes transient;
    std::vector<const ParetoPoint*> inner, top;
    std::vector<const ParetoPoint*> hull;  // the lower convex hull of `inner`
    std::vector<double> gains;             // for each point of the hull except the last: exposed time that the next point saves
                                           // per additional byte
  };
  struct Mix;
  class MixSearch;
  class Placing;
  struct Shared;

  static Nanos LeastExposed(const Level& level, int32_t layers, Bytes held);
  static StageSolution AsTheyAre(const RecomputeProblem& problem, const std::vector<const ParetoPoint*>& points);
  const StageSolution& LeastMemory(int32_t layers) const;

  RecomputeProblem problem_;
  std::shared_ptr<Shared> shared_;
  std::vector<ParetoPoint> inner_, top_;
  std::vector<Level> levels_;
  mutable std::map<int32_t, StageSolution> least_memory_;  // the key is the number of layers
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_
