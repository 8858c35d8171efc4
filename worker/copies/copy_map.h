// CopyMap decides which nodes keep a generation's in-memory checkpoints. If there is more than one node, each shard is on two
// different nodes, so it survives the loss of one of them. If ranks on several nodes have the same states, two of these ranks
// write the shard, each on its own node. Otherwise the rank that has the states sends the shard to a rank of the next node.
// Pure; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPY_MAP_H_
#define LYNX_WORKER_COPIES_COPY_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/layout.h"

namespace lynx::worker {

// Identifies the node of a rank. If one host runs several worker daemons, each with its own directory, they count as several
// nodes.
struct NodePlace {
  std::string host;
  std::string directory;  // the path of the directory, or the digest of the path
  bool operator==(const NodePlace&) const = default;
};
// Returns the node number of each rank. Nodes are numbered in the order in which they first appear.
std::vector<int32_t> NodeNumbers(const std::vector<NodePlace>& ranks);
// Returns the ranks of a node, in ascending order.
std::vector<int32_t> RanksOfNode(const std::vector<int32_t>& nodes, int32_t node);

// The two ranks on whose nodes one shard is kept.
struct ShardKeepers {
  std::string file;
  int32_t first = 0;    // this rank writes the shard on its own node
  int32_t second = -1;  // a rank of another node; -1 if there is only one node
  bool sent = false;  // true: the first rank sends the shard to the second; false: the second, if any, has the same states and
                      // writes them itself
  bool operator==(const ShardKeepers&) const = default;
};
// Returns the keepers of all shards, in the order of ShardFiles. `nodes`: the node number of each rank.
std::vector<ShardKeepers> KeepersOf(const ParallelLayout& layout, const std::vector<int32_t>& nodes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_MAP_H_
