// Groups: which ranks take part in each kind of communication, which connections a rank therefore needs, and how messages name
// both. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_GROUP_H_
#define LYNX_WORKER_COLLECTIVES_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/layout.h"
#include "planner/program/action.h"
#include "planner/schedule/schedule.h"

namespace lynx::worker {

// The stage of the data group's route for a tied embedding. Its members are the two ranks of a replica that hold copies of one
// embedding: the rank with the model's first piece and the rank with its last piece. The route exists where these are two
// ranks, neither of which holds both pieces.
inline constexpr int32_t kTiedEmbedding = -2;

// A route: transfers on one route stay in order with each other.
//
// Each boundary between virtual stages is a route of its own, so that a rank with several virtual stages may send and receive
// for them in any order. Where two ranks of a replica hold the same pieces of the model (Chimera), the gradients of each piece
// are a route of their own, because the two ranks finish them in different orders. The gradient of a tied embedding is a route
// too: see kTiedEmbedding.
struct Route {
  Group group = Group::kNone;
  // The rank's own virtual stage whose neighbour or whose gradients are meant. kNoStage: the rank has only one. The tensor
  // group and the world ignore it.
  int32_t stage = kNoStage;

  Route(Group g) : group(g) {}  // NOLINT: a group alone is a route on a rank with one virtual stage
  Route(Group g, int32_t virtual_stage) : group(g), stage(virtual_stage) {}
};

// The rank's virtual stages, by chunk.
std::vector<int32_t> StagesOfRank(const ParallelLayout& layout, int32_t rank);

struct GroupMembers {
  std::vector<int32_t> ranks;  // in the order of the group: by tensor, data or world index
  int32_t index = 0;           // index of the given rank in `ranks`
};
// For kTensor, kData and kWorld. The data group is all ranks that hold the same weights: see GradientRanks.
GroupMembers MembersOf(const ParallelLayout& layout, int32_t rank, Group group);
// The members of the data group's route kTiedEmbedding; only the rank itself if no other rank has a copy.
GroupMembers TiedMembersOf(const ParallelLayout& layout, int32_t rank);

// The rank that has the virtual stage after or before the route's stage; -1 where the pipeline ends and where that stage is on
// the same rank. LYNX_CHECK fails unless the route's stage is on `rank`.
int32_t NeighbourOf(const ParallelLayout& layout, int32_t rank, const Route& route);

// What a connection carries. Every route has connections of its own, so that routes never delay each other. The control
// connection, beside the data, tells that a peer ends, and why.
enum class Channel : uint8_t { kControl, kTensor, kData, kWorld, kStage };

// One TCP connection of a rank, used in both directions.
struct LinkKey {
  int32_t peer = 0;
  Channel channel = Channel::kControl;
  // kStage: the lower of the two virtual stages. kData: in a bidirectional pipeline, the piece of the model; for a tied
  // embedding, the number of pieces. Otherwise 0.
  int32_t part = 0;
  auto operator<=>(const LinkKey&) const = default;
};
// `route`: kNextStage or kPreviousStage, or kData.
int32_t PartOf(const ParallelLayout& layout, int32_t rank, const Route& route);
// Sorted. Every peer with a data connection has a control connection too.
std::vector<LinkKey> LinksOf(const ParallelLayout& layout, int32_t rank);

std::string RankText(const ParallelLayout& layout, int32_t rank);  // "rank 3 (stage 1, tp 1)", with dp where dp > 1
const char* ChannelName(Channel channel);                          // "tensor"
const char* GroupName(Group group);                                // "tensor group", "next stage"

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_GROUP_H_
