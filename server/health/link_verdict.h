// Verdict on links that have become slower: decides which nodes cause this. Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_LINK_VERDICT_H_
#define LYNX_SERVER_HEALTH_LINK_VERDICT_H_

#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace lynx::server {

// A slow link from one node to a different one.
struct SlowLink {
  NodeId from, to;
  double factor = 1;  // factor by which the link is slower than assumed
  int64_t bytes = 0;  // bytes that the link transfers in one step
  Nanos before, now;  // busy time of the link per step, earlier and now
};

struct SlowNodes {
  std::vector<NodeId> nodes;  // one node, or both ends of a link that is alone
  double factor = 1;          // the factor of their slowest link
  std::string text;           // a part of a sentence that says which links are slow, and by how much
};

// The node with slow links to the most other nodes, at least two, is slow. This is repeated with the remaining links until
// there is no such node. If a link remains alone, both of its nodes count as slow, because nobody can tell which of them is
// slow. This does no harm: the planner uses the speed of the slower end of a link anyway.
std::vector<SlowNodes> NodesOfSlowLinks(const std::vector<SlowLink>& links);

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_LINK_VERDICT_H_
