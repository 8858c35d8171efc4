// HEU: heuristic scheduling of recomputation. For one layer it finds every worthwhile trade of memory against exposed
// time, assuming that its neighbours are like it: the Pareto *front* (layer_pareto.h). For a stage it mixes the points of
// the front over the stage's identical layers, to use the memory that a single policy for all layers would leave unused.
// Then it places each layer's late items again, with the layer's real neighbours. docs/measurements/planner.md has its
// run time, and docs/formulation.md says what it loses against OPT (opt/stage_opt.h).
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
  Nanos kept_exposed;  // part of use.exposed that late items do not cause
  // If the neighbours are alike, with the layer's equal share of the stall and of the copy time.
  Bytes held;
  Bytes transient;
  Nanos exposed;
};

// All points that are not dominated in held, transient and exposed together, one for each such triple, ordered by
// exposed, then held. Not empty. Offloading takes at most the layer's equal share of the host's memory.
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

  // Solves the same problem for another stage of the pipeline. This is far cheaper than from the problem if there is no
  // stall and no offloading and at least two microbatches are in flight; else only the placement of late items is shared.
  // A problem for one microbatch in flight has no forward windows, so it differs from one for more.
  StageHeu ForStage(int32_t layers, int32_t in_flight, Nanos stall) const;

  // A policy with little exposed time and bytes() <= budget; nullopt if HEU finds no policy that fits. If the problem has
  // a stall or offloading, `layers` must be the problem's.
  std::optional<StageSolution> Best(int32_t layers, Bytes budget) const;
  // The value of the best mix of points if neighbours are alike: a quick estimate of Best's value. Below LeastBytes: the
  // value of the policy with the least memory.
  StageValue Estimate(int32_t layers, Bytes budget) const;
  // True if some mix takes at most `budget` if neighbours are alike; then Estimate's mix does too.
  bool Estimates(int32_t layers, Bytes budget) const;
  // The least memory of all policies that HEU knows. Best finds a policy for any budget that is at least this.
  Bytes LeastBytes(int32_t layers) const;

 private:
  StageHeu() = default;
  void FindFronts();
  void MakeLevels();

  // Points whose transient memory is at most `transient`, without those that another point dominates in held and exposed;
  // ordered by held. `inner` may be empty: for a stage with one layer.
  struct Level {
    Bytes transient;
    std::vector<const ParetoPoint*> inner, top;
    std::vector<const ParetoPoint*> hull;  // the lower convex hull of inner
    std::vector<double> gains;             // for each point of the hull except the last: exposed time saved per byte up to
                                           // the next
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
