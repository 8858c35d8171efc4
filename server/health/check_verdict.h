// Verdict of a node check: decides which nodes are to blame for the bad devices and links that ranks find before they train
// (worker/rank/check/node_check.h). Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_CHECK_VERDICT_H_
#define LYNX_SERVER_HEALTH_CHECK_VERDICT_H_

#include <functional>
#include <string>
#include <vector>

#include "common/ids.h"

namespace lynx::server {

// What one rank reports.
struct CheckFinding {
  NodeId node;                // the rank's own node
  NodeId other;               // node of the rank at the other end of a bad link; empty: the rank's own device is bad
  bool other_silent = false;  // the rank at the other end has reported nothing
};

struct BadNode {
  NodeId node;
  std::string why;  // why the node is bad, as a part of a sentence
  bool operator==(const BadNode&) const = default;
};

// A node is bad in three cases: one of its devices is bad; a link within the node is bad; or a link to one of its ranks is bad
// and this rank has reported nothing. Among the remaining bad links, the node with links to the most nodes, at least two, is
// bad. This is repeated, each time without the links of the nodes that are known to be bad. If a link remains alone, either of
// its nodes may be to blame. The node with more `failures_before` is chosen; if both have the same number, the last by name.
// The result is in this order and names no node twice.
std::vector<BadNode> NodesToBlame(const std::vector<CheckFinding>& findings,
                                  const std::function<int(const NodeId&)>& failures_before);

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_CHECK_VERDICT_H_
