// Groups: which ranks take part in each kind of communication, which connections one rank therefore holds, and how
// both are named in messages. Pure; thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_GROUP_H_
#define LYNX_WORKER_COLLECTIVES_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/action.h"
#include "planner/layout.h"

namespace lynx {

struct GroupMembers {
  std::vector<int32_t> ranks;  // in the order of the group: by tensor, data or world index
  int32_t index = 0;           // of the asking rank in `ranks`
};
// Of kTensor, kData and kWorld.
GroupMembers MembersOf(const ParallelLayout& layout, int32_t rank, Group group);

// The rank at the other end of kNextStage or kPreviousStage; -1 where the pipeline ends.
int32_t NeighbourOf(const ParallelLayout& layout, int32_t rank, Group neighbour);

// What a connection carries. Every group has connections of its own, so that groups never hold each other up; control
// tells a peer's end and its reason, beside the data.
enum class Channel : uint8_t { kControl, kTensor, kData, kWorld, kStage };

// One TCP connection of a rank, used in both directions.
struct LinkKey {
  int32_t peer = 0;
  Channel channel = Channel::kControl;
  auto operator<=>(const LinkKey&) const = default;
};
// Sorted. Every peer with a data connection has a control connection too.
std::vector<LinkKey> LinksOf(const ParallelLayout& layout, int32_t rank);

std::string RankText(const ParallelLayout& layout, int32_t rank);  // "rank 3 (stage 1, tp 1)", with dp where dp > 1
const char* ChannelName(Channel channel);                          // "tensor"
const char* GroupName(Group group);                                // "tensor group", "next stage"

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_GROUP_H_
