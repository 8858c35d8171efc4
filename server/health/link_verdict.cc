#include "server/health/link_verdict.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lynx::server {
namespace {

std::string SpeedText(const SlowLink& link) {
  return absl::StrCat(FormatBytes(Bytes(link.bytes)), " of a step take ", FormatDuration(link.now), " in place of ",
                      FormatDuration(link.before));
}

std::map<NodeId, std::set<NodeId>> Neighbours(const std::vector<SlowLink>& links) {
  std::map<NodeId, std::set<NodeId>> neighbours;
  for (const SlowLink& link : links) {
    neighbours[link.from].insert(link.to);
    neighbours[link.to].insert(link.from);
  }
  return neighbours;
}

SlowNodes Verdict(std::vector<NodeId> nodes, const std::vector<SlowLink>& of, const std::string& which) {
  const SlowLink& worst =
      *std::max_element(of.begin(), of.end(), [](const SlowLink& a, const SlowLink& b) { return a.factor < b.factor; });
  return {.nodes = std::move(nodes),
          .factor = worst.factor,
          .text = absl::StrCat(which, " slower than before (", worst.from.value, " to ", worst.to.value, ": ", SpeedText(worst),
                               ")")};
}

// Returns the node with slow links to the most others, and removes its slow links from `links`; nullopt: no node has slow links
// to two others.
std::optional<SlowNodes> TakeWorst(std::vector<SlowLink>& links) {
  const auto neighbours = Neighbours(links);
  const auto worst = std::max_element(neighbours.begin(), neighbours.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (worst == neighbours.end() || worst->second.size() < 2) return std::nullopt;
  const NodeId& node = worst->first;
  const auto rest = std::stable_partition(links.begin(), links.end(),
                                          [&](const SlowLink& link) { return link.from != node && link.to != node; });
  const std::vector<SlowLink> own(rest, links.end());
  links.erase(rest, links.end());
  const std::string others =
      absl::StrJoin(worst->second, ", ", [](std::string* text, const NodeId& other) { absl::StrAppend(text, other.value); });
  return Verdict({node}, own, absl::StrCat("the links of node ", node.value, " (to ", others, ") are"));
}

}  // namespace

std::vector<SlowNodes> NodesOfSlowLinks(const std::vector<SlowLink>& links) {
  std::vector<SlowLink> left = links;
  std::vector<SlowNodes> verdicts;
  while (std::optional<SlowNodes> worst = TakeWorst(left)) verdicts.push_back(*std::move(worst));
  while (!left.empty()) {
    const SlowLink first = left.front();
    const auto same = [&](const SlowLink& link) {
      return (link.from == first.from && link.to == first.to) || (link.from == first.to && link.to == first.from);
    };
    std::vector<SlowLink> pair;
    std::copy_if(left.begin(), left.end(), std::back_inserter(pair), same);
    std::erase_if(left, same);
    verdicts.push_back(Verdict({first.from, first.to}, pair,
                               absl::StrCat("the link between nodes ", first.from.value, " and ", first.to.value, " is")));
  }
  return verdicts;
}

}  // namespace lynx::server
