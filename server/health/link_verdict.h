// The verdict on links that have become slower: whose they are. Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_LINK_VERDICT_H_
#define LYNX_SERVER_HEALTH_LINK_VERDICT_H_

#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace lynx {

// From one node to another, which are not the same.
struct SlowLink {
  NodeId from, to;
  double factor = 1;  // by which it is slower than is taken for granted
  int64_t bytes = 0;  // that it carries in a step
  Nanos before, now;  // that it is busy with them
};

struct SlowNodes {
  std::vector<NodeId> nodes;  // one, or both ends of a link that is alone
  double factor = 1;          // of the slowest of their links
  std::string text;           // a clause: which links, and how slow
};

// The node with slow links to most other nodes, at least two, has slow links, again and again until all of them are explained.
// Of a link that is alone both nodes count as slow: the planner takes the slower end of a link, and which it is nobody can
// tell.
std::vector<SlowNodes> NodesOfSlowLinks(const std::vector<SlowLink>& links);

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_LINK_VERDICT_H_
