#include "worker/copies/copy_map.h"

#include <algorithm>

#include "common/check.h"
#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {
namespace {

// Returns the ranks that have the states of a shard, in ascending order.
std::vector<int32_t> HoldersOf(const ParallelLayout& layout, int32_t stage, int32_t tp_rank, int32_t replica) {
  std::vector<int32_t> holders;
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const RankCoordinates at = CoordinatesOf(layout, rank);
    if (at.stage != stage || at.tp != tp_rank) continue;
    if (at.dp % WritingReplicas(layout) == replica) holders.push_back(rank);
  }
  return holders;
}

// Returns the rank to which `rank` sends its shard: a rank of the next node, or -1 if there is only one node. Ranks of one
// node get different partners if the next node has enough ranks.
int32_t PartnerOf(int32_t rank, const std::vector<int32_t>& nodes) {
  const int32_t count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  if (count == 1) return -1;
  const int32_t node = nodes[static_cast<size_t>(rank)];
  const std::vector<int32_t> own = RanksOfNode(nodes, node);
  const std::vector<int32_t> next = RanksOfNode(nodes, (node + 1) % count);
  const auto place = static_cast<size_t>(std::find(own.begin(), own.end(), rank) - own.begin());
  return next[place % next.size()];
}

}  // namespace

std::vector<int32_t> NodeNumbers(const std::vector<NodePlace>& ranks) {
  std::vector<NodePlace> seen;
  std::vector<int32_t> numbers;
  for (const NodePlace& place : ranks) {
    const auto at = std::find(seen.begin(), seen.end(), place);
    numbers.push_back(static_cast<int32_t>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(place);
  }
  return numbers;
}

std::vector<int32_t> RanksOfNode(const std::vector<int32_t>& nodes, int32_t node) {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] == node) ranks.push_back(static_cast<int32_t>(rank));
  }
  return ranks;
}

std::vector<ShardKeepers> KeepersOf(const ParallelLayout& layout, const std::vector<int32_t>& nodes) {
  LYNX_CHECK(static_cast<int64_t>(nodes.size()) == layout.ranks());
  std::vector<ShardKeepers> shards;
  const int32_t replicas = WritingReplicas(layout);
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    for (int32_t tp_rank = 0; tp_rank < layout.tp; ++tp_rank) {
      for (int32_t replica = 0; replica < replicas; ++replica) {
        const std::vector<int32_t> holders = HoldersOf(layout, stage, tp_rank, replica);
        ShardKeepers shard{.file = ShardFile(layout, stage, tp_rank, replica), .first = holders.front()};
        const int32_t home = nodes[static_cast<size_t>(shard.first)];
        const auto elsewhere = std::find_if(holders.begin(), holders.end(),
                                            [&](int32_t rank) { return nodes[static_cast<size_t>(rank)] != home; });
        shard.sent = elsewhere == holders.end();
        shard.second = shard.sent ? PartnerOf(shard.first, nodes) : *elsewhere;
        shard.sent = shard.sent && shard.second >= 0;
        shards.push_back(std::move(shard));
      }
    }
  }
  return shards;
}

}  // namespace lynx::worker
