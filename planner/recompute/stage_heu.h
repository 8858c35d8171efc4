// HEU: heuristic scheduling of recomputation. For one layer it finds every worthwhile trade of memory against exposed time
// if its neighbours are like it: the *front* (layer_pareto.h). For a stage it mixes the front's points over the stage's
// identical layers so that they use the memory that one policy for all would leave, and then places each layer's late
// items again with its true neighbours in view. docs/measurements/planner.md has the time that it takes, and
// docs/formulation.md what it gives up against OPT (opt/stage_opt.h).
//
// What does not depend on the stage is found once and shared by all stages of a pipeline (ForStage).
// Not thread-safe: stages that share fill one cache.
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

struct FrontPoint {
  LayerPolicy policy{};
  ItemSet late_items = 0;
  LayerUse use;
  Nanos kept_exposed;  // part of use.exposed: not by late items
  // If the neighbours are alike, with the layer's equal share of the stall and of the copy time.
  Bytes held;
  Bytes transient;
  Nanos exposed;
};

// All points that no other betters in held, transient and exposed at once, one for each such triple; in order of
// exposed, then held. Not empty. Offloading takes at most the layer's equal share of the host's memory.
std::vector<FrontPoint> LayerPareto(const RecomputeProblem& problem, bool top);

class StageHeu {
 public:
  // `problem` is valid. Its layers say how large a layer's share of the stall, the copy time and the host's memory is;
  // its budget is not read.
  explicit StageHeu(const RecomputeProblem& problem);
  StageHeu(const StageHeu&) = delete;
  StageHeu& operator=(const StageHeu&) = delete;
  StageHeu(StageHeu&&) = default;
  StageHeu& operator=(StageHeu&&) = default;

  // The same problem for another stage of the pipeline. Without a stall and offloading far cheaper than from the problem, for
  // two or more microbatches in flight; else only what places late items is shared. A problem for one microbatch in flight has
  // no forward windows, so it is not the same as one for more.
  StageHeu ForStage(int32_t layers, int32_t in_flight, Nanos stall) const;

  // A policy of little exposed time with bytes() <= budget; nullopt if HEU finds none that fits. Where the problem has a
  // stall or offloading, `layers` is the problem's.
  std::optional<StageSolution> Best(int32_t layers, Bytes budget) const;
  // What the best mix of points is worth if neighbours are alike: a quick estimate of Best's value. Below LeastBytes:
  // the value there.
  StageValue Estimate(int32_t layers, Bytes budget) const;
  // Whether some mix takes at most `budget` if neighbours are alike: then Estimate's does.
  bool Estimates(int32_t layers, Bytes budget) const;
  // Memory of the policy of least memory that HEU knows: Best finds one for any budget from here on.
  Bytes LeastBytes(int32_t layers) const;

 private:
  StageHeu() = default;
  void FindFronts();
  void MakeLevels();

  // Points whose transient memory is at most `transient`, without those that another betters in held and exposed; in
  // order of held. `inner` may be empty: of a stage of one layer.
  struct Level {
    Bytes transient;
    std::vector<const FrontPoint*> inner, top;
    std::vector<const FrontPoint*> hull;  // the lower convex hull of inner
    std::vector<double> gains;            // of each point of the hull but the last: exposed time saved per byte up to the next
  };
  struct Mix;
  class MixSearch;
  class Placing;
  struct Shared;

  static Nanos LeastExposed(const Level& level, int32_t layers, Bytes held);
  static StageSolution AsTheyAre(const RecomputeProblem& problem, const std::vector<const FrontPoint*>& points);
  const StageSolution& LeastMemory(int32_t layers) const;

  RecomputeProblem problem_;
  std::shared_ptr<Shared> shared_;
  std::vector<FrontPoint> inner_, top_;
  std::vector<Level> levels_;
  mutable std::map<int32_t, StageSolution> least_memory_;  // by layers
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_HEU_H_
