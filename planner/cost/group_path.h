// GroupPath is the way that a group's collectives take: the link that they need, and the nodes that they pass. The functions
// compute how long a collective takes on it. A device with tiles (HardwareProfile::gemm_tiles) is a GPU, and NCCL moves its
// data; without tiles, the ranks are those of Lynx's engine, which run rings only (worker/collectives/ring.h).
//
// - Rings (Patarasuk and Yuan 2009): n-1 steps of bytes/n for an all-gather or a reduce-scatter, twice that for an all-reduce.
//   Ranks of the engine take a step together, so every step has the latency of the slowest link. NCCL passes a chunk on as
//   soon as it is there. So of the n-1 steps of a ring over k nodes, k-1 have the latency between nodes, and the others that
//   inside a node (ncclTopoTuneModel in NCCL's src/graph/tuning.cc: nInterSteps).
// - Trees: NCCL sums an all-reduce over nodes inside each node first, along a chain of its members, then between nodes along
//   two binary trees, and sends the result back the same way ("Massively Scale Your Deep Learning Training with NCCL 2.4").
//   With g members in a node: 2 ((g-1) latency inside + log2(k) latency between) + 2 bytes / (0.92 rate). Depth and the factor
//   0.92 are those of ncclTopoTuneModel. NCCL takes the faster of rings and trees, and so does AllReduceTime. Reductions
//   inside switches are not counted.
//
// Plain data and pure functions; integer arithmetic, so the same on every machine; thread-safe.
#ifndef LYNX_PLANNER_COST_GROUP_PATH_H_
#define LYNX_PLANNER_COST_GROUP_PATH_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/cost/hardware_profile.h"

namespace lynx {

struct GroupPath {
  LinkCost link;         // the slowest link; its rate is that of the whole group's rings
  Nanos inside_latency;  // the latency of a step between two members in a node; used only if nodes > 1
  int32_t nodes = 1;     // number of nodes that NCCL's rings and trees pass; for rings of the engine always 1
  bool operator==(const GroupPath&) const = default;
};

// Which ranks share nodes, and which nodes share a pod (HardwareProfile::pod_nodes). Ranks fill nodes in order, nodes fill
// pods.
struct RankPlaces {
  int32_t ranks = 1;           // number of ranks of the job, at least 1
  int32_t ranks_per_node = 1;  // at least 1
  int32_t pod_nodes = 0;       // 0: all nodes are in one pod

  int32_t NodeOf(int32_t rank) const { return rank / ranks_per_node; }
  int32_t PodOf(int32_t rank) const { return pod_nodes == 0 ? 0 : NodeOf(rank) / pod_nodes; }
  // Nodes of a pod on which the job runs.
  int32_t UsedNodes(int32_t pod) const;
};

// The path of a group that spans nodes. `members` are in ascending order. The link inside a node is the one that joins the
// members of a node, of the node where it is slowest.
//
// Rate. If the group has at least n members in each of its nodes, it uses n rings, at most as many as a node has adapters. Each
// ring carries an equal share of the data through its own adapter of each node. The node's other ranks are in groups of the
// same size, which do this at the same time; if their rings are more than the adapters, all share the adapters. Inside a node,
// the data of all rings pass each member. Between pods, the uplinks have room for pod_nodes / oversubscription of a pod's
// adapters of the same place. If the group has m nodes in a pod, each of its rings leaves the pod once, and UsedNodes / m
// groups do so at the same time.
GroupPath PathThrough(const std::vector<int32_t>& members, const HardwareProfile& profile, const RankPlaces& places);
// The worse of two paths, value by value.
GroupPath SlowerPath(GroupPath a, const GroupPath& b);
// The inner link, or the link inside a node or between nodes, that joins the ranks `first` to `last`. Levels are numbered from
// the closest: inner links, then the link inside a node, then the link between nodes.
size_t LinkLevelOf(int32_t first, int32_t last, const HardwareProfile& profile, int32_t ranks_per_node);
const LinkCost& LinkAt(size_t level, const HardwareProfile& profile);
// The link between two nodes of different pods, for a transfer that all nodes of the pod do at the same time.
LinkCost LinkBetweenPods(const HardwareProfile& profile, int32_t used_nodes);

// Time of an all-gather over n ranks whose result has `bytes`, or of a reduce-scatter whose input has `bytes`; 0 if n = 1.
Nanos AllGatherTime(Bytes bytes, int32_t n, const GroupPath& path);
// Time of an all-to-all in which each of n ranks has `bytes`, of which it keeps 1/n and sends 1/n to each other rank; 0 if n =
// 1. Ranks of the engine exchange with one peer after another: n - 1 steps. NCCL's messages to all peers are under way at the
// same time; between nodes, the members in a node share the rings' adapters.
Nanos AllToAllTime(Bytes bytes, int32_t n, const GroupPath& path, bool steps);
// Time of an all-reduce of `bytes` over n ranks; 0 if n = 1.
Nanos AllReduceTime(Bytes bytes, int32_t n, const GroupPath& path);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_GROUP_PATH_H_
