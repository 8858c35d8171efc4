#include "server/health/check_verdict.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lynx::server {
namespace {

using Links = std::map<NodeId, std::set<NodeId>>;  // the bad links of each node; each link is listed for both of its nodes

void Remove(const NodeId& node, Links& links) {
  for (const NodeId& other : links[node]) {
    links[other].erase(node);
    if (links[other].empty()) links.erase(other);
  }
  links.erase(node);
}

std::string NodesText(const std::set<NodeId>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* text, const NodeId& node) { absl::StrAppend(text, node.value); });
}

// Returns the node with the most bad links. If no node has several, each bad link is alone, and one of its two nodes is chosen.
BadNode WorstOf(const Links& links, const std::function<int(const NodeId&)>& failures_before) {
  const auto rank_of = [&](const auto& entry) {
    return std::tuple(entry.second.size(), failures_before(entry.first), entry.first);
  };
  const auto worst =
      std::max_element(links.begin(), links.end(), [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  const NodeId& node = worst->first;
  if (worst->second.size() > 1) return {node, absl::StrCat("its links to nodes ", NodesText(worst->second), " are bad")};
  const NodeId& other = *worst->second.begin();
  const int failures = failures_before(node);
  const std::string link = absl::StrCat("the link between it and node ", other.value, " is bad, and ");
  if (failures > failures_before(other)) {
    return {node, absl::StrCat(link, "of the two it has failed more often within the hour (", failures,
                               failures == 1 ? " time)" : " times)")};
  }
  return {node, absl::StrCat(link, "either may be to blame: nothing speaks more against one of the two")};
}

}  // namespace

std::vector<BadNode> NodesToBlame(const std::vector<CheckFinding>& findings,
                                  const std::function<int(const NodeId&)>& failures_before) {
  std::vector<BadNode> bad;
  const auto blame = [&](const NodeId& node, const char* why) {
    if (std::none_of(bad.begin(), bad.end(), [&](const BadNode& known) { return known.node == node; }))
      bad.push_back({node, why});
  };
  for (const CheckFinding& finding : findings) {
    if (finding.other.value.empty()) blame(finding.node, "the check of a device there has failed");
  }
  Links links;
  for (const CheckFinding& finding : findings) {
    if (finding.other.value.empty()) continue;
    if (finding.other == finding.node) {
      blame(finding.node, "a link within it is bad");
    } else if (finding.other_silent) {
      blame(finding.other, "a rank there did not answer in the check, and said nothing of why");
    } else {
      links[finding.node].insert(finding.other);
      links[finding.other].insert(finding.node);
    }
  }
  for (const BadNode& known : bad) Remove(known.node, links);
  while (!links.empty()) {
    bad.push_back(WorstOf(links, failures_before));
    Remove(bad.back().node, links);
  }
  return bad;
}

}  // namespace lynx::server
