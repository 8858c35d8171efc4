#include "worker/collectives/group.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/stage_context.h"

namespace lynx::worker {

namespace {

int32_t StageOf(const ParallelLayout& layout, int32_t rank, const Route& route) {
  const std::vector<int32_t> stages = StagesOfRank(layout, rank);
  if (route.stage == kNoStage) {
    LYNX_CHECK(stages.size() == 1);  // a rank with several stages must name one in the route
    return stages.front();
  }
  LYNX_CHECK(std::find(stages.begin(), stages.end(), route.stage) != stages.end());
  return route.stage;
}

}  // namespace

std::vector<int32_t> StagesOfRank(const ParallelLayout& layout, int32_t rank) {
  const PipelineShape pipeline = PipelineOf(layout);
  std::vector<int32_t> stages;
  for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    stages.push_back(pipeline.StageOn(CoordinatesOf(layout, rank).stage, chunk));
  }
  return stages;
}

GroupMembers MembersOf(const ParallelLayout& layout, int32_t rank, Group group) {
  const RankCoordinates own = CoordinatesOf(layout, rank);
  GroupMembers members;
  const auto add = [&](int32_t member) {
    if (member == rank) members.index = static_cast<int32_t>(members.ranks.size());
    members.ranks.push_back(member);
  };
  switch (group) {
    case Group::kTensor:
      for (int32_t t = 0; t < layout.tp; ++t) add(RankOf(layout, {t, own.stage, own.dp}));
      return members;
    case Group::kData: {
      // In a bidirectional pipeline, the ranks r and p - 1 - r hold the same pieces of the model; p is even then.
      const int32_t other = layout.pp - 1 - own.stage;
      const bool both = PipelineOf(layout).bidirectional() && other != own.stage;
      for (int32_t d = 0; d < layout.dp; ++d) {
        add(RankOf(layout, {own.tp, both ? std::min(own.stage, other) : own.stage, d}));
        if (both) add(RankOf(layout, {own.tp, std::max(own.stage, other), d}));
      }
      return members;
    }
    case Group::kWorld:
      for (int32_t r = 0; r < layout.ranks(); ++r) add(r);
      return members;
    case Group::kExpert:
    case Group::kExpertData: {
      LYNX_CHECK(!PipelineOf(layout).bidirectional() && RanksOfStage(layout) % layout.ep == 0);
      const int32_t number = NumberInStage(layout, own), place = number % layout.ep;
      const bool expert = group == Group::kExpert;
      const int32_t first = expert ? number - place : place, step = expert ? 1 : layout.ep;
      for (int32_t i = 0; i < (expert ? layout.ep : ExpertReplicas(layout)); ++i) {
        add(RankInStage(layout, own.stage, first + i * step));
      }
      return members;
    }
    case Group::kNone:
    case Group::kNextStage:
    case Group::kPreviousStage:
    case Group::kHost: break;
  }
  LYNX_CHECK(!"MembersOf is for groups of ranks, not for neighbours");
  return members;
}

GroupMembers TiedMembersOf(const ParallelLayout& layout, int32_t rank) {
  const PipelineShape pipeline = PipelineOf(layout);
  RankCoordinates at = CoordinatesOf(layout, rank);
  const int32_t first = pipeline.RankOf(0), last = pipeline.RankOf(pipeline.pieces() - 1);
  const bool apart = !pipeline.bidirectional() && first != last;
  if (!apart || (at.stage != first && at.stage != last)) return {.ranks = {rank}};
  GroupMembers members{.index = at.stage == first ? 0 : 1};
  for (const int32_t stage : {first, last}) {
    at.stage = stage;
    members.ranks.push_back(RankOf(layout, at));
  }
  return members;
}

int32_t NeighbourOf(const ParallelLayout& layout, int32_t rank, const Route& route) {
  LYNX_CHECK(route.group == Group::kNextStage || route.group == Group::kPreviousStage);
  const PipelineShape pipeline = PipelineOf(layout);
  const int32_t stage = StageOf(layout, rank, route);
  const int32_t neighbour = route.group == Group::kNextStage ? pipeline.Next(stage) : pipeline.Previous(stage);
  RankCoordinates at = CoordinatesOf(layout, rank);
  if (neighbour == kNoStage || pipeline.RankOf(neighbour) == at.stage) return -1;
  at.stage = pipeline.RankOf(neighbour);
  return RankOf(layout, at);
}

int32_t PartOf(const ParallelLayout& layout, int32_t rank, const Route& route) {
  const PipelineShape pipeline = PipelineOf(layout);
  switch (route.group) {
    case Group::kNextStage: return StageOf(layout, rank, route);
    case Group::kPreviousStage: return pipeline.Previous(StageOf(layout, rank, route));
    case Group::kData:
      if (route.stage == kTiedEmbedding) return pipeline.pieces();
      return pipeline.bidirectional() ? pipeline.PieceOf(StageOf(layout, rank, route)) : 0;
    default: break;
  }
  LYNX_CHECK(!"PartOf is for neighbours and the data group");
  return 0;
}

std::vector<LinkKey> LinksOf(const ParallelLayout& layout, int32_t rank, bool experts) {
  std::set<LinkKey> links;
  const auto add_ring = [&](const GroupMembers& members, Channel channel, int32_t part) {
    const int32_t n = static_cast<int32_t>(members.ranks.size());
    if (n == 1) return;
    // With two members, the next and the previous neighbour are the same rank, and both use one connection.
    links.insert({members.ranks[(members.index + 1) % n], channel, part});
    links.insert({members.ranks[(members.index + n - 1) % n], channel, part});
  };
  add_ring(MembersOf(layout, rank, Group::kTensor), Channel::kTensor, 0);
  add_ring(MembersOf(layout, rank, Group::kWorld), Channel::kWorld, 0);
  add_ring(TiedMembersOf(layout, rank), Channel::kData, PartOf(layout, rank, {Group::kData, kTiedEmbedding}));
  if (ExpertGroups(layout, experts)) {
    for (const int32_t member : MembersOf(layout, rank, Group::kExpert).ranks) {
      if (member != rank) links.insert({member, Channel::kExpert, 0});
    }
    add_ring(MembersOf(layout, rank, Group::kExpertData), Channel::kExpertData, 0);
  }
  for (const int32_t stage : StagesOfRank(layout, rank)) {
    add_ring(MembersOf(layout, rank, Group::kData), Channel::kData, PartOf(layout, rank, {Group::kData, stage}));
    for (const Group neighbour : {Group::kNextStage, Group::kPreviousStage}) {
      const Route route(neighbour, stage);
      const int32_t peer = NeighbourOf(layout, rank, route);
      if (peer >= 0) links.insert({peer, Channel::kStage, PartOf(layout, rank, route)});
    }
  }
  std::set<LinkKey> control;
  for (const LinkKey& link : links) control.insert({link.peer, Channel::kControl});
  links.merge(control);
  return {links.begin(), links.end()};
}

std::string RankText(const ParallelLayout& layout, int32_t rank) {
  const RankCoordinates at = CoordinatesOf(layout, rank);
  std::string text = absl::StrCat("rank ", rank, " (stage ", at.stage, ", tp ", at.tp);
  if (layout.dp > 1) absl::StrAppend(&text, ", dp ", at.dp);
  if (layout.ep > 1) absl::StrAppend(&text, ", ep ", NumberInStage(layout, at) % layout.ep);
  return text + ")";
}

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kControl: return "control";
    case Channel::kTensor: return "tensor";
    case Channel::kData: return "data";
    case Channel::kWorld: return "world";
    case Channel::kStage: return "stage";
    case Channel::kExpert: return "expert";
    case Channel::kExpertData: return "expert data";
  }
  return "unknown";
}

const char* GroupName(Group group) {
  switch (group) {
    case Group::kNone: return "no group";
    case Group::kTensor: return "tensor group";
    case Group::kNextStage: return "next stage";
    case Group::kPreviousStage: return "previous stage";
    case Group::kData: return "data group";
    case Group::kWorld: return "world group";
    case Group::kHost: return "host";
    case Group::kExpert: return "expert group";
    case Group::kExpertData: return "expert data group";
  }
  return "unknown group";
}

}  // namespace lynx::worker
