// Groups: which ranks take part in each kind of communication, which connections a rank needs for it, and how messages name
// groups and connections. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_GROUP_H_
#define LYNX_WORKER_COLLECTIVES_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/layout.h"
#include "planner/program/action.h"
#include "planner/schedule/schedule.h"

namespace lynx::worker {

// The value of Route::stage for the route of a tied embedding. Its members are two ranks of a replica that hold copies of one
// embedding: the rank with the first piece of the model and the rank with the last piece. The route exists only if these are
// two different ranks, and neither of them holds both pieces.
inline constexpr int32_t kTiedEmbedding = -2;

// A route is a path for transfers. Transfers on one route stay in order.
//
// Each boundary between virtual stages is a route of its own, so that a rank with several virtual stages can send and receive
// for them in any order. If two ranks of a replica hold the same pieces of the model (Chimera), the gradients of each piece are
// a route of their own, because the two ranks finish the pieces in different orders. The gradient of a tied embedding is a
// route too: see kTiedEmbedding.
struct Route {
  Group group = Group::kNone;
  // The rank's own virtual stage. The route leads to a neighbour of this stage, or carries its gradients. kNoStage: the rank
  // has only one stage. The tensor group, the groups for experts and the world ignore the field.
  int32_t stage = kNoStage;

  Route(Group g) : group(g) {}  // NOLINT: a group alone is a route on a rank with one virtual stage
  Route(Group g, int32_t virtual_stage) : group(g), stage(virtual_stage) {}
};

// Returns the rank's virtual stages, by chunk.
std::vector<int32_t> StagesOfRank(const ParallelLayout& layout, int32_t rank);

struct GroupMembers {
  std::vector<int32_t> ranks;  // in the order of the group: by tensor, data or world index
  int32_t index = 0;           // the index of the given rank in `ranks`
};
// Returns the members of kTensor, kData, kWorld, kExpert or kExpertData (layout.h). The data group has all ranks that hold the
// same weights: see GradientRanks. LYNX_CHECK fails for a group for experts in a bidirectional pipeline, in which no model with
// experts is trained.
GroupMembers MembersOf(const ParallelLayout& layout, int32_t rank, Group group);
// Returns the members of the route with stage kTiedEmbedding. Returns only the rank itself if no other rank has a copy.
GroupMembers TiedMembersOf(const ParallelLayout& layout, int32_t rank);

// Returns the rank that has the virtual stage after or before the route's stage. Returns -1 if the pipeline ends there, or if
// that stage is on the same rank. LYNX_CHECK fails unless the route's stage is on `rank`.
int32_t NeighbourOf(const ParallelLayout& layout, int32_t rank, const Route& route);

// Says what a connection carries. Every route has its own connections, so routes never delay each other. The control connection
// carries no data: on it a peer says that it ends, and why.
enum class Channel : uint8_t { kControl, kTensor, kData, kWorld, kStage, kExpert, kExpertData };

// One TCP connection of a rank, used in both directions.
struct LinkKey {
  int32_t peer = 0;
  Channel channel = Channel::kControl;
  // kStage: the lower one of the two virtual stages. kData: in a bidirectional pipeline, the index of the piece of the model;
  // for a tied embedding, the index after the last piece. Otherwise 0.
  int32_t part = 0;
  auto operator<=>(const LinkKey&) const = default;
};
// Returns LinkKey::part for a route. `route`: kNextStage, kPreviousStage or kData.
int32_t PartOf(const ParallelLayout& layout, int32_t rank, const Route& route);
// Returns the connections of the rank, sorted. Every peer with a data connection also has a control connection. The members of
// an expert group are all connected to each other; the members of every other group form a ring. `experts`: see ExpertGroups.
std::vector<LinkKey> LinksOf(const ParallelLayout& layout, int32_t rank, bool experts = false);

// True if the ranks have groups for experts. This is so if the layout has expert parallelism, or if the model has experts: with
// ep 1 the experts are complete on every rank of a stage, so all ranks of the stage sum their gradients.
inline bool ExpertGroups(const ParallelLayout& layout, bool experts) { return experts || layout.ep > 1; }

// Returns a text like "rank 3 (stage 1, tp 1)". It also has dp if dp > 1, and the place in the expert group if ep > 1.
std::string RankText(const ParallelLayout& layout, int32_t rank);
const char* ChannelName(Channel channel);  // "tensor"
const char* GroupName(Group group);        // "tensor group", "next stage"

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_GROUP_H_
