// The verdict of a node check: which nodes are to blame for the devices and links that ranks have found to be bad before they
// train (worker/rank/check/node_check.h). Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_CHECK_VERDICT_H_
#define LYNX_SERVER_HEALTH_CHECK_VERDICT_H_

#include <functional>
#include <string>
#include <vector>

#include "common/ids.h"

namespace lynx {

// What one rank says.
struct CheckFinding {
  NodeId node;                // its own
  NodeId other;               // of the rank at a bad link's other end; empty: it is the rank's own device
  bool other_silent = false;  // nothing was heard of that rank either
};

struct BadNode {
  NodeId node;
  std::string why;  // a clause
  bool operator==(const BadNode&) const = default;
};

// A node is bad if a device of it is, or a link within it, or one to a rank there that has said nothing. Of the other links,
// the node with bad ones to most nodes, at least two, is bad, again and again until all of them are explained. A link that is
// alone has two nodes that may be to blame: the one with more `failures_before` is, else the last by name. In that order; no
// node twice.
std::vector<BadNode> NodesToBlame(const std::vector<CheckFinding>& findings,
                                  const std::function<int(const NodeId&)>& failures_before);

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_CHECK_VERDICT_H_
