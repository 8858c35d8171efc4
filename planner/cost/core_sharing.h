// CoreSharing: which pipeline ranks compute slower because ranks share cores (ClusterTopology::shared_cores). Ranks
// that are ready to compute on the same cores have equal parts of them (processor sharing): of n ranks on cores that
// carry c at full speed, each runs at c / n of its speed, where n > c. A pipeline rank, here called a stage, is as
// slow as its slowest rank.
//
// A stage's own slowdown comes of its own ranks alone, which are symmetric and compute at the same time; it is part
// of its cost model (planner/cost/stage_costs.h). What other stages on the same cores add depends on when they compute,
// and only the simulation knows that.
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
  CoreSharing() = default;  // nobody shares
  CoreSharing(const ClusterTopology& cluster, const ParallelLayout& layout);

  // How many times as long the stage computes while no other stage does, in thousandths: 1000 = its ranks have what
  // they need.
  int32_t OwnSlowdown(int32_t stage) const { return own_.empty() ? 1000 : own_[static_cast<size_t>(stage)]; }
  // The same while all those stages compute that are not 0 in `computing`, the stage among them.
  int32_t Slowdown(int32_t stage, const std::vector<uint8_t>& computing) const;
  // Whether stages slow each other.
  bool BetweenStages() const { return between_stages_; }

 private:
  struct Pool {
    int32_t at_once_permille = 0;
    std::vector<int32_t> ranks;  // by stage: how many run there
  };

  std::vector<Pool> pools_;  // that have more ranks than they carry at full speed
  std::vector<int32_t> own_;
  bool between_stages_ = false;
};

// The profile of devices on which compute takes `slowdown` thousandths of its time, since ranks share their cores: so
// do copies to the host, which the cores make, and transfers take that much more of them.
HardwareProfile OnSharedCores(HardwareProfile profile, int32_t slowdown);

// The stages that compute at a time on cores that they share: how much each has left to do, and which ends first. Not
// thread-safe. Work counts in the time that it takes while no other stage computes.
class SharedCompute {
 public:
  // `sharing` outlives it.
  SharedCompute(const CoreSharing& sharing, int32_t stages);

  // `now` never goes back.
  void Begin(int32_t stage, Nanos now, Nanos work);
  struct End {
    int32_t stage;
    Nanos at;
  };
  // Which stage is done first if no other begins; of several at once the one of the lowest number. nullopt: none
  // computes.
  std::optional<End> Next() const;
  // Takes the stage of Next() out.
  void Finish(const End& end);

 private:
  void AdvanceTo(Nanos now);
  void FindSlowdowns();

  const CoreSharing& sharing_;
  Nanos now_;
  std::vector<uint8_t> computing_;  // by stage, as are the others
  std::vector<Nanos> left_;
  std::vector<int32_t> slowdown_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_CORE_SHARING_H_
