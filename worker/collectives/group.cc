#include "worker/collectives/group.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {

GroupMembers MembersOf(const ParallelLayout& layout, int32_t rank, Group group) {
  const RankCoordinates own = CoordinatesOf(layout, rank);
  GroupMembers members;
  switch (group) {
    case Group::kTensor:
      for (int32_t t = 0; t < layout.tp; ++t) members.ranks.push_back(RankOf(layout, {t, own.stage, own.dp}));
      members.index = own.tp;
      return members;
    case Group::kData:
      for (int32_t d = 0; d < layout.dp; ++d) members.ranks.push_back(RankOf(layout, {own.tp, own.stage, d}));
      members.index = own.dp;
      return members;
    case Group::kWorld:
      for (int32_t r = 0; r < layout.ranks(); ++r) members.ranks.push_back(r);
      members.index = rank;
      return members;
    case Group::kNone:
    case Group::kNextStage:
    case Group::kPreviousStage:
    case Group::kHost:
      break;
  }
  LYNX_CHECK(!"MembersOf is for the tensor, data and world groups");
  return members;
}

int32_t NeighbourOf(const ParallelLayout& layout, int32_t rank, Group neighbour) {
  LYNX_CHECK(neighbour == Group::kNextStage || neighbour == Group::kPreviousStage);
  RankCoordinates at = CoordinatesOf(layout, rank);
  at.stage += neighbour == Group::kNextStage ? 1 : -1;
  if (at.stage < 0 || at.stage >= layout.pp) return -1;
  return RankOf(layout, at);
}

std::vector<LinkKey> LinksOf(const ParallelLayout& layout, int32_t rank) {
  std::set<LinkKey> links;
  const auto add_ring = [&](Group group, Channel channel) {
    const GroupMembers members = MembersOf(layout, rank, group);
    const int32_t n = static_cast<int32_t>(members.ranks.size());
    if (n == 1) return;
    // With two members both ends of the ring are one connection.
    links.insert({members.ranks[(members.index + 1) % n], channel});
    links.insert({members.ranks[(members.index + n - 1) % n], channel});
  };
  add_ring(Group::kTensor, Channel::kTensor);
  add_ring(Group::kData, Channel::kData);
  add_ring(Group::kWorld, Channel::kWorld);
  for (Group neighbour : {Group::kNextStage, Group::kPreviousStage}) {
    const int32_t peer = NeighbourOf(layout, rank, neighbour);
    if (peer >= 0) links.insert({peer, Channel::kStage});
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
  return text + ")";
}

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kControl:
      return "control";
    case Channel::kTensor:
      return "tensor";
    case Channel::kData:
      return "data";
    case Channel::kWorld:
      return "world";
    case Channel::kStage:
      return "stage";
  }
  return "unknown";
}

const char* GroupName(Group group) {
  switch (group) {
    case Group::kNone:
      return "no group";
    case Group::kTensor:
      return "tensor group";
    case Group::kNextStage:
      return "next stage";
    case Group::kPreviousStage:
      return "previous stage";
    case Group::kData:
      return "data group";
    case Group::kWorld:
      return "world group";
    case Group::kHost:
      return "host";
  }
  return "unknown group";
}

}  // namespace lynx
