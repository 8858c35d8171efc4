// HEU: heuristic scheduling of recomputation. For one layer it finds the Pareto *front* of memory against exposed time,
// assuming that the neighbouring layers have the same policy (layer_pareto.h). For a stage it mixes the points of the front
// over the stage's identical layers, to use the memory that a single policy for all layers would leave unused. Then it chooses
// the placements of each layer's late items again, this time with the layer's real neighbours. The run time is in
// docs/measurements/planner.md; how much HEU loses against OPT (opt/stage_opt.h) is in docs/formulation.md.
//
// Results that do not depend on the stage are computed once and shared by all stages of a pipeline (ForStage). Not
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
  Nanos kept_exposed;  // the part of use.exposed that late items do not cause
  // Values if the neighbouring layers use the same point, and if the layer has an equal share of the stall and of the copy
  // time.
  Bytes held;
  Bytes transient;
  Nanos exposed;
};

// Returns all points that are not dominated in `held`, `transient` and `exposed` together. They are ordered by `exposed`, then
// `held`; of points that are equal in all three, one is returned. Not empty. Offloading takes at most the layer's equal share
// of the host's memory.
std::vector<ParetoPoint> LayerPareto(const RecomputeProblem& problem, LayerPlace place);

class StageHeu {
 public:
  // `problem` must be valid. Its number of layers determines a layer's share of the stall, the copy time and the host's
  // memory; its budget is not used.
  explicit StageHeu(const RecomputeProblem& problem);
  StageHeu(const StageHeu&) = delete;
  StageHeu& operator=(const StageHeu&) = delete;
  StageHeu(StageHeu&&) = default;
  StageHeu& operator=(StageHeu&&) = default;

  // Solves the same problem for another stage of the pipeline. This is far cheaper than to construct a StageHeu from the
  // problem, if there is no stall and no offloading and at least two microbatches are in flight. Otherwise only the placements
  // of late items are shared. A problem for one microbatch in flight has no forward windows, so its results cannot be used for
  // stages with more microbatches in flight, nor the other way round.
  StageHeu ForStage(int32_t layers, int32_t in_flight, Nanos stall) const;

  // Returns a policy with little exposed time and bytes() <= budget; nullopt if HEU finds no policy that fits. If the problem
  // has a stall or offloading, `layers` must be the number of layers of the problem.
  std::optional<StageSolution> Best(int32_t layers, Bytes budget) const;
  // A quick estimate of Best's value. A mix gives each layer one point of the Pareto front. The estimate is the value of the
  // best mix, as if the neighbours of each layer used the same point as the layer. If no mix fits in `budget`, the estimate is
  // the value of the policy with the least memory.
  StageValue Estimate(int32_t layers, Bytes budget) const;
  // True if some mix takes at most `budget` bytes by the estimate. Then Estimate also returns the value of such a mix.
  bool Estimates(int32_t layers, Bytes budget) const;
  // The memory of the policy with the least memory that HEU finds. Best finds a policy for any budget that is at least this.
  Bytes LeastBytes(int32_t layers) const;

 private:
  StageHeu() = default;
  void FindFronts();
  void MakeLevels();

  // The points whose transient memory is at most `transient`, ordered by held memory. Points that another point dominates in
  // held memory and exposed time are left out. `inner` may be empty; then the level serves only stages with one layer.
  struct Level {
    Bytes transient;
    std::vector<const ParetoPoint*> inner, top;
    std::vector<const ParetoPoint*> hull;  // the lower convex hull of inner
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
  mutable std::map<int32_t, StageSolution> least_memory_;  // by layers
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_
