// Lanes are the queues of a rank's transfers. Each group that communicates as a ring has a lane. Each direction over each
// boundary between virtual stages has a lane. In a bidirectional pipeline each piece of the model has a data lane of its own. A
// tied embedding has a lane of its own. A lane carries out its operations one after another; lanes progress independently.
// Pure; thread-safe.
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
};

class LaneTable {
 public:
  LaneTable(const ParallelLayout& layout, int32_t rank);

  int32_t size() const { return static_cast<int32_t>(lanes_.size()); }
  const LaneInfo& at(int32_t lane) const { return lanes_[static_cast<size_t>(lane)]; }
  // Returns the lane of a route of kTensor, kData or kWorld.
  int32_t Ring(const Route& route) const;
  // Returns the lane of a route of kNextStage or kPreviousStage, or -1 if no other rank has that stage.
  int32_t Neighbour(const Route& route, Direction direction) const;

 private:
  void AddRing(const GroupMembers& members, Channel channel, int32_t part, const std::string& name);
  void AddNeighbour(const Route& route);

  const ParallelLayout layout_;
  const int32_t rank_;
  std::vector<LaneInfo> lanes_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_LANES_H_
