// CoreSharing says which pipeline ranks compute slower because ranks share cores (ClusterTopology::shared_cores). Ranks that
// are ready to compute on the same cores get equal parts of these cores (processor sharing). If n ranks use cores that run c
// ranks at full speed, and n > c, each rank runs at c / n of its speed. In this class, "stage" means a pipeline rank. A stage
// is as slow as its slowest rank.
//
// A stage's own slowdown comes only from the ranks of this stage. These ranks are symmetric and compute at the same time, so
// the slowdown is part of the stage's cost model (planner/cost/stage_costs.h). How much other stages on the same cores slow it
// down depends on when they compute; only the simulation knows that.
//
// Pure; immutable after construction; thread-safe.
#ifndef LYNX_PLANNER_COST_CORE_SHARING_H_
#define LYNX_PLANNER_COST_CORE_SHARING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "planner/problem/layout.h"

namespace lynx {

class CoreSharing {
 public:
  CoreSharing() = default;  // a cluster in which no ranks share cores
  CoreSharing(const ClusterTopology& cluster, const ParallelLayout& layout);

  // The factor, in thousandths, by which the stage computes slower while no other stage computes. 1000 = its ranks have enough
  // cores.
  int32_t OwnSlowdown(int32_t stage) const { return own_.empty() ? 1000 : own_[static_cast<size_t>(stage)]; }
  // The factor, in thousandths, by which the stage computes slower while all stages with a nonzero entry in `computing`
  // compute. The entry of `stage` must be nonzero.
  int32_t Slowdown(int32_t stage, const std::vector<uint8_t>& computing) const;
  // True if stages slow each other down.
  bool BetweenStages() const { return between_stages_; }

 private:
  struct Pool {
    int32_t at_once_permille = 0;
    std::vector<int32_t> ranks;  // the index is the stage; number of the stage's ranks that run on these cores
  };

  std::vector<Pool> pools_;  // cores that have more ranks than they can run at full speed
  std::vector<int32_t> own_;
  bool between_stages_ = false;
};

// Returns the profile of devices on which compute takes `slowdown` thousandths of its normal time, because ranks share their
// cores. The same cores also make the copies to the host, so copies take longer by the same factor. Transfers between ranks
// take a share of the cores' time; this share grows by the same factor.
HardwareProfile OnSharedCores(HardwareProfile profile, int32_t slowdown);

// Keeps track of the stages that compute at the same time on shared cores: how much work each stage has left, and which stage
// ends first. Work is measured as the time that it takes while no other stage computes. Not thread-safe.
class SharedCompute {
 public:
  // `sharing` must outlive this object.
  SharedCompute(const CoreSharing& sharing, int32_t stages);

  // The stage begins to compute at `now`. `now` must not decrease from call to call.
  void Begin(int32_t stage, Nanos now, Nanos work);
  struct End {
    int32_t stage;
    Nanos at;
  };
  // Returns the stage that ends first if no other stage begins. If several stages end at the same time, returns the one with
  // the lowest number. nullopt: no stage computes.
  std::optional<End> Next() const;
  // Removes the stage that Next() has returned.
  void Finish(const End& end);

 private:
  void AdvanceTo(Nanos now);
  void FindSlowdowns();

  const CoreSharing& sharing_;
  Nanos now_;
  std::vector<uint8_t> computing_;  // the index is the stage, also in left_ and slowdown_
  std::vector<Nanos> left_;
  std::vector<int32_t> slowdown_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_CORE_SHARING_H_
