#include "server/scheduling/locality_selection.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/network_domain.h"

namespace lynx::server {
namespace {

// Returns a node with `devices` free devices.
NodeDevices NodeIn(const std::string& domain, const std::string& name, int devices) {
  NodeDevices node{.node = NodeId(name), .domain = domain};
  for (int i = 0; i < devices; ++i) node.free.push_back(i);
  return node;
}

int64_t DevicesOf(const NodeDevices& node) { return static_cast<int64_t>(node.free.size()); }

std::string Names(const std::vector<NodeDevices>& nodes) {
  std::string names;
  for (const NodeDevices& node : nodes) absl::StrAppend(&names, names.empty() ? "" : " ", node.node.value);
  return names;
}

std::string NearestNames(std::vector<NodeDevices> nodes, int64_t needed) {
  SortByLocality(nodes);
  return Names(SelectByLocality(nodes, needed, DevicesOf));
}

TEST(SelectByLocality, WithoutDomainsTheFirstByName) {
  EXPECT_EQ(NearestNames({NodeIn("", "n2", 2), NodeIn("", "n0", 2), NodeIn("", "n1", 2)}, 3), "n0 n1");
  EXPECT_EQ(NearestNames({NodeIn("", "n0", 1)}, 2), "n0");
  EXPECT_EQ(NearestNames({}, 2), "");
}

TEST(SelectByLocality, SlowOnesAreTakenAfterOthersThatLieAsClose) {
  std::vector<NodeDevices> nodes = {NodeIn("r0", "n0", 1), NodeIn("r0", "n1", 1), NodeIn("r0", "n2", 1), NodeIn("r1", "n3", 1)};
  nodes[0].slow = true;
  EXPECT_EQ(NearestNames(nodes, 2), "n1 n2");
  EXPECT_EQ(NearestNames(nodes, 3), "n1 n2 n0") << "closer than n3, though slow";
}

// The rates are in hundredths of the rate of one kind of nodes; 0: unknown.
std::string NamesByRate(const std::vector<int64_t>& rates) {
  std::vector<NodeDevices> nodes;
  for (const int64_t rate : rates) {
    nodes.push_back(NodeIn("r0", absl::StrCat("n", nodes.size()), 1));
    nodes.back().flops_per_second = rate * 1'000'000;
  }
  SortByLocality(nodes);
  return Names(nodes);
}

TEST(SortByLocality, AmongNodesThatAreAsCloseClearlyFasterKindsComeFirst) {
  EXPECT_EQ(NamesByRate({100, 300, 110, 250}), "n1 n3 n0 n2") << "by name within a kind";
  EXPECT_EQ(NamesByRate({100, 900, 300}), "n1 n2 n0");
  EXPECT_EQ(NamesByRate({100, 0, 300}), "n2 n0 n1") << "an unknown rate counts as slow";
  EXPECT_EQ(NamesByRate({100, 120, 90, 0, 135}), "n0 n1 n2 n3 n4") << "measurements of equal nodes differ";
  std::vector<NodeDevices> nodes = {NodeIn("r0", "n0", 1), NodeIn("r0", "n1", 1), NodeIn("r1", "n2", 1)};
  nodes[0].flops_per_second = nodes[2].flops_per_second = 900;
  nodes[1].flops_per_second = 100;
  nodes[0].slow = true;
  EXPECT_EQ(NearestNames(nodes, 3), "n1 n0 n2") << "closeness and slowness come before the kind";
}

TEST(SelectByLocality, TheSmallestPartThatDoes) {
  const std::vector<NodeDevices> nodes = {NodeIn("r0/a", "n0", 2), NodeIn("r0/a", "n1", 2), NodeIn("r0/b", "n2", 2),
                                          NodeIn("r0/b", "n3", 2), NodeIn("r0/b", "n4", 2), NodeIn("r1/a", "n5", 2),
                                          NodeIn("r1/b", "n6", 2)};
  EXPECT_EQ(NearestNames(nodes, 2), "n5") << "of the row that has least to spare";
  EXPECT_EQ(NearestNames(nodes, 4), "n0 n1") << "row r1 does, too, but in two racks";
  EXPECT_EQ(NearestNames(nodes, 6), "n2 n3 n4") << "one rack";
  EXPECT_EQ(NearestNames(nodes, 8), "n0 n2 n3 n4") << "the large rack of one row, and one node of the other rack";
  EXPECT_EQ(NearestNames(nodes, 12), "n0 n1 n2 n3 n4 n5") << "the large row, and one rack of the other";
}

TEST(SelectByLocality, NodesOfUnknownPlaceAreAPartOfTheirOwn) {
  EXPECT_EQ(NearestNames({NodeIn("", "n0", 1), NodeIn("r1", "n1", 1), NodeIn("r1", "n2", 1)}, 2), "n1 n2");
}

// Returns the number of different parts of the network at level `depth` that contain the nodes.
size_t Parts(const std::vector<NodeDevices>& nodes, size_t depth) {
  std::set<std::string> parts;
  for (const NodeDevices& node : nodes)
    parts.insert(std::string(DomainPart(node.domain, 0)) + "/" + (depth > 0 ? std::string(DomainPart(node.domain, 1)) : ""));
  return parts.size();
}

TEST(SelectByLocality, HoldsForRandomNetworks) {
  std::mt19937 rng(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<NodeDevices> nodes;
    std::map<std::string, int64_t> rows, racks;
    int64_t total = 0;
    for (int i = 0; i < 20; ++i) {
      const std::string row = absl::StrCat("r", rng() % 3), rack = absl::StrCat(row, "/", rng() % 3);
      nodes.push_back(NodeIn(rack, absl::StrCat("n", 10 + i), static_cast<int>(rng() % 4)));
      total += DevicesOf(nodes.back());
      rows[row] += DevicesOf(nodes.back());
      racks[rack] += DevicesOf(nodes.back());
    }
    SortByLocality(nodes);
    const int64_t needed = 1 + static_cast<int64_t>(rng() % 30);
    const std::vector<NodeDevices> chosen = SelectByLocality(nodes, needed, DevicesOf);
    int64_t offered = 0, least = 100;
    for (const NodeDevices& node : chosen) {
      offered += DevicesOf(node);
      least = std::min(least, DevicesOf(node));
    }
    EXPECT_EQ(offered >= needed, total >= needed);
    EXPECT_GT(least, 0) << "a node that offers nothing";
    std::vector<NodeDevices> sorted = chosen;
    SortByLocality(sorted);
    EXPECT_EQ(Names(sorted), Names(chosen));
    const auto does = [&](const auto& parts) {
      return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.second >= needed; });
    };
    if (does(rows)) EXPECT_EQ(Parts(chosen, 0), 1u);
    if (does(racks)) EXPECT_EQ(Parts(chosen, 1), 1u);
  }
}

}  // namespace
}  // namespace lynx::server
