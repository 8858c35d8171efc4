// CopyMap: on which nodes a generation's in-memory checkpoints are kept. Each shard is on two different nodes, so that it
// survives the loss of one of them. Where two nodes have replicas of a state, each node writes its own; otherwise the rank that
// has the state sends it to a rank of the next node. Pure; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPY_MAP_H_
#define LYNX_WORKER_COPIES_COPY_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/layout.h"

namespace lynx::worker {

// Identifies the node of a rank. Several worker daemons on one host, each with its own directory, count as several nodes.
struct NodePlace {
  std::string host;
  std::string directory;  // the directory or its digest
  bool operator==(const NodePlace&) const = default;
};
// For each rank the number of its node. Nodes are numbered in the order in which they first appear.
std::vector<int32_t> NodeNumbers(const std::vector<NodePlace>& ranks);
// The ranks of a node, in order.
std::vector<int32_t> RanksOfNode(const std::vector<int32_t>& nodes, int32_t node);

// The two places of one shard.
struct ShardKeepers {
  std::string file;
  int32_t first = 0;    // this rank writes it on its own node
  int32_t second = -1;  // a rank of another node; -1: there is only one node
  bool sent = false;    // the shard is sent to the second rank; otherwise that rank has the same states and writes them itself
  bool operator==(const ShardKeepers&) const = default;
};
// The places of all shards, in the order of ShardFiles. `nodes`: by rank.
std::vector<ShardKeepers> KeepersOf(const ParallelLayout& layout, const std::vector<int32_t>& nodes);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_MAP_H_
