// Lanes are the queues of a rank's transfers. Each group that communicates as a ring has a lane. Each direction over each
// boundary between virtual stages has a lane. In a bidirectional pipeline each piece of the model has a data lane of its own. A
// tied embedding has a lane of its own. The expert group and the expert data group each have a lane, if the ranks have these
// groups (ExpertGroups). A lane carries out its operations one after another; lanes progress independently. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_LANES_H_
#define LYNX_WORKER_COLLECTIVES_LANES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/problem/layout.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/group.h"

namespace lynx::worker {

struct LaneInfo {
  std::string name;  // "of the tensor group", "to the next stage"
  Direction direction = Direction::kBoth;
  int32_t members = 1;
  int32_t index = 0;
  std::optional<LinkKey> out, in;  // nullopt: the rank is alone in its group, or the lane does not use this direction
  // Only the expert group: the connection to the member that is k places further in the group, at index k - 1. Step k of an
  // all-to-all sends to this member, and receives from the member that is k places before. The first is `out`, the last is
  // `in`.
  std::vector<LinkKey> by_distance;
};

class LaneTable {
 public:
  // `experts`: see ExpertGroups.
  LaneTable(const ParallelLayout& layout, int32_t rank, bool experts = false);

  int32_t size() const { return static_cast<int32_t>(lanes_.size()); }
  bool has_experts() const { return first_expert_lane_ >= 0; }  // true if there are lanes for experts
  const LaneInfo& at(int32_t lane) const { return lanes_[static_cast<size_t>(lane)]; }
  // Returns the lane of a route of kTensor, kData, kWorld, kExpert or kExpertData. LYNX_CHECK fails if the table has no such
  // lane.
  int32_t Ring(const Route& route) const;
  // Returns the lane of a route of kNextStage or kPreviousStage, or -1 if no other rank has that stage.
  int32_t Neighbour(const Route& route, Direction direction) const;

 private:
  void AddRing(const GroupMembers& members, Channel channel, int32_t part, const std::string& name);
  void AddNeighbour(const Route& route);

  const ParallelLayout layout_;
  const int32_t rank_;
  int32_t first_expert_lane_ = -1;  // the lane of the expert group; the next lane is that of the expert data group
  std::vector<LaneInfo> lanes_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_LANES_H_
