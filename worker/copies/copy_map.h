// Copy map: on which nodes the copies of a generation's states are. Each shard has two places on different nodes, so that it
// outlives one of them. Where replicas of a state are on two nodes, each writes its own; else the rank that has it sends it to
// a rank of the next node. Pure; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPY_MAP_H_
#define LYNX_WORKER_COPIES_COPY_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/layout.h"

namespace lynx {

// What tells nodes apart. Worker daemons on one host, each with a directory of its own, stand for nodes.
struct NodePlace {
  std::string host;
  std::string directory;  // or its digest
  bool operator==(const NodePlace&) const = default;
};
// By rank: the number of its node, counted in the order in which they first appear.
std::vector<int32_t> NodeNumbers(const std::vector<NodePlace>& ranks);
// The ranks of a node, in order.
std::vector<int32_t> RanksOfNode(const std::vector<int32_t>& nodes, int32_t node);

// One shard's two places.
struct ShardKeepers {
  std::string file;
  int32_t first = 0;    // this rank writes it on its own node
  int32_t second = -1;  // a rank of another node; -1: there is only one node
  bool sent = false;    // the second is sent it; else it has the same states and writes them itself
  bool operator==(const ShardKeepers&) const = default;
};
// Of all shards, in the order of ShardFiles. `nodes`: by rank.
std::vector<ShardKeepers> KeepersOf(const ParallelLayout& layout, const std::vector<int32_t>& nodes);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_MAP_H_
