#include "worker/collectives/lanes.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/stage_context.h"

namespace lynx::worker {
namespace {

// The numbers of a rank's lanes. First come the lanes of the tensor group, the world and the tied embedding. Then comes the
// lane of the data group; in a bidirectional pipeline, each chunk of the rank has its own data lane. Then come four lanes for
// each chunk: to and from the next stage, to and from the previous stage. Last come the lanes of the groups for experts.
constexpr int32_t kTensorLane = 0;
constexpr int32_t kWorldLane = 1;
constexpr int32_t kTiedLane = 2;
constexpr int32_t kFirstDataLane = 3;

}  // namespace

LaneTable::LaneTable(const ParallelLayout& layout, int32_t rank, bool experts) : layout_(layout), rank_(rank) {
  const auto group_name = [](Group group) { return absl::StrCat("of the ", GroupName(group)); };
  AddRing(MembersOf(layout, rank, Group::kTensor), Channel::kTensor, 0, group_name(Group::kTensor));
  AddRing(MembersOf(layout, rank, Group::kWorld), Channel::kWorld, 0, group_name(Group::kWorld));
  AddRing(TiedMembersOf(layout, rank), Channel::kData, PartOf(layout, rank, {Group::kData, kTiedEmbedding}),
          "of the tied embedding");
  const std::vector<int32_t> stages = StagesOfRank(layout, rank);
  const bool by_piece = PipelineOf(layout).bidirectional();
  for (const int32_t stage : stages) {
    const int32_t part = PartOf(layout, rank, {Group::kData, stage});
    AddRing(MembersOf(layout, rank, Group::kData), Channel::kData, part,
            absl::StrCat(group_name(Group::kData), by_piece ? absl::StrCat(" for piece ", part) : ""));
    if (!by_piece) break;
  }
  for (const int32_t stage : stages) {
    AddNeighbour({Group::kNextStage, stage});
    AddNeighbour({Group::kPreviousStage, stage});
  }
  if (!ExpertGroups(layout, experts)) return;
  first_expert_lane_ = size();
  const GroupMembers members = MembersOf(layout, rank, Group::kExpert);
  AddRing(members, Channel::kExpert, 0, group_name(Group::kExpert));
  for (int32_t k = 1; k < layout.ep; ++k) {
    lanes_.back().by_distance.push_back(
        {members.ranks[static_cast<size_t>((members.index + k) % layout.ep)], Channel::kExpert});
  }
  AddRing(MembersOf(layout, rank, Group::kExpertData), Channel::kExpertData, 0, group_name(Group::kExpertData));
}

void LaneTable::AddRing(const GroupMembers& members, Channel channel, int32_t part, const std::string& name) {
  LaneInfo lane{.name = name, .members = static_cast<int32_t>(members.ranks.size()), .index = members.index};
  if (lane.members > 1) {
    lane.out = LinkKey{members.ranks[(lane.index + 1) % lane.members], channel, part};
    lane.in = LinkKey{members.ranks[(lane.index + lane.members - 1) % lane.members], channel, part};
  }
  lanes_.push_back(std::move(lane));
}

void LaneTable::AddNeighbour(const Route& route) {
  const int32_t peer = NeighbourOf(layout_, rank_, route);
  // A rank with one virtual stage has one next and one previous stage, so the names of its lanes need no stage number.
  const std::string of = PipelineOf(layout_).chunks == 1 ? "" : absl::StrCat(" of virtual stage ", route.stage);
  const std::string neighbour = GroupName(route.group) + of;
  LaneInfo send{.name = "to the " + neighbour, .direction = Direction::kSendOnly};
  LaneInfo receive{.name = "from the " + neighbour, .direction = Direction::kReceiveOnly};
  if (peer >= 0) {
    const LinkKey link{peer, Channel::kStage, PartOf(layout_, rank_, route)};
    send.out = link;
    receive.in = link;
  }
  lanes_.push_back(std::move(send));
  lanes_.push_back(std::move(receive));
}

int32_t LaneTable::Ring(const Route& route) const {
  if (route.group == Group::kTensor) return kTensorLane;
  if (route.group == Group::kWorld) return kWorldLane;
  if (route.group == Group::kExpert || route.group == Group::kExpertData) {
    LYNX_CHECK(first_expert_lane_ >= 0);  // the communicator's options must say that the model has experts
    return first_expert_lane_ + (route.group == Group::kExpert ? 0 : 1);
  }
  LYNX_CHECK(route.group == Group::kData);
  if (route.stage == kTiedEmbedding) return kTiedLane;
  const PipelineShape pipeline = PipelineOf(layout_);
  if (!pipeline.bidirectional()) return kFirstDataLane;
  LYNX_CHECK(route.stage != kNoStage && pipeline.RankOf(route.stage) == CoordinatesOf(layout_, rank_).stage);
  return kFirstDataLane + pipeline.ChunkOf(route.stage);
}

int32_t LaneTable::Neighbour(const Route& route, Direction direction) const {
  const PipelineShape pipeline = PipelineOf(layout_);
  const int32_t first = kFirstDataLane + (pipeline.bidirectional() ? pipeline.chunks : 1);
  const int32_t chunk = route.stage == kNoStage ? 0 : pipeline.ChunkOf(route.stage);
  const int32_t lane =
      first + 4 * chunk + (route.group == Group::kNextStage ? 0 : 2) + (direction == Direction::kSendOnly ? 0 : 1);
  return at(lane).out || at(lane).in ? lane : -1;
}

}  // namespace lynx::worker
