#include "planner/search/arrangement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "common/check.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/supported.h"
#include "planner/search/make_plan.h"
#include "planner/search/plan_among.h"

namespace lynx {
namespace {

// If there are more kinds than this, each part is tried only with the given order of kinds and with the reverse order.
constexpr size_t kMaxPermutedKinds = 3;
// If there are more arrangements than this, FastestArrangement tries only some of them.
constexpr size_t kMaxTried = 8;

// True if the groups differ at most in their number of nodes.
bool AreOneKind(const NodeGroup& a, const NodeGroup& b) {
  if (a.name != b.name) return false;  // usually decides, and takes less time than the comparison of profiles
  NodeGroup same = b;
  same.nodes = a.nodes;
  return a == same;
}

// One group for each kind of node, with all nodes of this kind, in the order in which the kinds first occur.
std::vector<NodeGroup> KindsOf(const ClusterTopology& cluster) {
  std::vector<NodeGroup> kinds;
  for (const NodeGroup& group : cluster.groups) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const NodeGroup& k) { return AreOneKind(k, group); });
    if (kind == kinds.end()) {
      kinds.push_back(group);
    } else {
      kind->nodes += group.nodes;
    }
  }
  return kinds;
}

// All numbers that divide the number of nodes of every kind.
std::vector<int32_t> NumbersOfParts(const std::vector<NodeGroup>& kinds) {
  int32_t common = 0;
  for (const NodeGroup& kind : kinds) common = std::gcd(common, kind.nodes);
  std::vector<int32_t> numbers;
  for (int32_t parts = 1; parts <= common; ++parts) {
    if (common % parts == 0) numbers.push_back(parts);
  }
  return numbers;
}

std::vector<std::vector<size_t>> OrdersOfKinds(size_t kinds) {
  std::vector<size_t> order(kinds);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<size_t>> orders;
  if (kinds > kMaxPermutedKinds) return {order, {order.rbegin(), order.rend()}};
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// The number of the first device of each node.
std::vector<int32_t> FirstDevices(const ClusterTopology& cluster) {
  std::vector<int32_t> first;
  int32_t devices = 0;
  for (const NodeGroup& group : cluster.groups) {
    for (int32_t node = 0; node < group.nodes; ++node) {
      first.push_back(std::exchange(devices, devices + group.devices_per_node));
    }
  }
  return first;
}

// The shared cores of `given`, with the numbers that their devices have in `arranged`.
std::vector<SharedCores> MovedCores(const ClusterTopology& given, const ClusterTopology& arranged) {
  if (given.shared_cores.empty()) return {};
  const std::vector<int32_t> order = NodeOrder(given, arranged);
  const std::vector<int32_t> from = FirstDevices(given), to = FirstDevices(arranged);
  std::vector<int32_t> moved(static_cast<size_t>(given.devices()));  // the new number of each device
  for (size_t node = 0; node < order.size(); ++node) {
    const int32_t end = node + 1 < to.size() ? to[node + 1] : arranged.devices();
    for (int32_t device = to[node]; device < end; ++device) {
      moved[static_cast<size_t>(from[static_cast<size_t>(order[node])] + device - to[node])] = device;
    }
  }
  std::vector<SharedCores> cores;
  for (SharedCores shared : given.shared_cores) {
    std::erase_if(shared.devices, [&](int32_t device) { return device >= given.devices(); });
    for (int32_t& device : shared.devices) device = moved[static_cast<size_t>(device)];
    std::sort(shared.devices.begin(), shared.devices.end());
    if (!shared.devices.empty()) cores.push_back(std::move(shared));
  }
  return cores;
}

// The cluster in `parts` equal parts, each with its kinds in the order `order`.
ClusterTopology Arranged(const ClusterTopology& cluster, const std::vector<NodeGroup>& kinds, const std::vector<size_t>& order,
                         int32_t parts) {
  ClusterTopology arranged;
  for (int32_t part = 0; part < parts; ++part) {
    for (const size_t kind : order) {
      arranged.groups.push_back(kinds[kind]);
      arranged.groups.back().nodes /= parts;
    }
  }
  arranged.shared_cores = MovedCores(cluster, arranged);
  return arranged;
}

// Returns the step time of the fastest plan; nullopt: no plan fits. If programs are large, only the most promising are
// simulated.
std::optional<Nanos> StepOn(PlanRequest request, ClusterTopology cluster) {
  request.cluster = std::move(cluster);
  const absl::StatusOr<std::vector<Candidate>> candidates = SupportedCandidates(request);
  if (!candidates.ok()) return std::nullopt;
  PlanCaches caches(request);
  const absl::StatusOr<std::optional<Plan>> plan = PlanAmong(request, *candidates, caches, {.effort = SearchEffort::kGlance});
  return plan.ok() && *plan ? std::optional((*plan)->step) : std::nullopt;
}

}  // namespace

std::vector<int32_t> NodeOrder(const ClusterTopology& given, const ClusterTopology& arranged) {
  struct Kind {
    const NodeGroup* group;
    std::vector<int32_t> nodes;  // the numbers that the nodes of this part have in `given`
    size_t taken = 0;
  };
  std::vector<Kind> kinds;
  const auto kind_of = [&](const NodeGroup& group) {
    return std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return AreOneKind(*kind.group, group); });
  };
  int32_t next = 0;
  for (const NodeGroup& group : given.groups) {
    auto kind = kind_of(group);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {.group = &group});
    for (int32_t node = 0; node < group.nodes; ++node) kind->nodes.push_back(next++);
  }
  std::vector<int32_t> order;
  for (const NodeGroup& group : arranged.groups) {
    const auto kind = kind_of(group);
    LYNX_CHECK(kind != kinds.end() && kind->taken + static_cast<size_t>(group.nodes) <= kind->nodes.size());
    for (int32_t node = 0; node < group.nodes; ++node) order.push_back(kind->nodes[kind->taken++]);
  }
  return order;
}

std::vector<ClusterTopology> Arrangements(const ClusterTopology& cluster) {
  std::vector<ClusterTopology> arrangements = {cluster};
  const std::vector<NodeGroup> kinds = KindsOf(cluster);
  if (kinds.size() < 2) return arrangements;
  for (const std::vector<size_t>& order : OrdersOfKinds(kinds.size())) {
    for (const int32_t parts : NumbersOfParts(kinds)) {
      ClusterTopology arranged = Arranged(cluster, kinds, order, parts);
      if (arranged.groups != cluster.groups) arrangements.push_back(std::move(arranged));
    }
  }
  return arrangements;
}

// If there are many arrangements, first tries all numbers of parts in the order in which the kinds occur, then all orders of
// kinds with the best number.
ClusterTopology FastestArrangement(const PlanRequest& request) {
  const ClusterTopology& given = request.cluster;
  if (given.groups.size() < 2) return given;
  const std::vector<NodeGroup> kinds = KindsOf(given);
  if (kinds.size() < 2 || !CheckCluster(given).ok() || !CheckSupported(request).ok()) return given;
  PlanRequest without_solver = request;
  if (request.spec.recompute == RecomputeMode::kOpt) without_solver.spec.recompute = RecomputeMode::kHeu;
  without_solver.exact = nullptr;
  ClusterTopology fastest = given;
  std::optional<Nanos> step = StepOn(without_solver, given);
  const auto attempt = [&](const std::vector<size_t>& order, int32_t parts) {
    ClusterTopology arranged = Arranged(given, kinds, order, parts);
    if (arranged.groups == given.groups) return false;
    const std::optional<Nanos> other = StepOn(without_solver, arranged);
    if (!other || (step && *other >= *step)) return false;
    step = other;
    fastest = std::move(arranged);
    return true;
  };
  const std::vector<std::vector<size_t>> orders = OrdersOfKinds(kinds.size());
  const std::vector<int32_t> numbers = NumbersOfParts(kinds);
  const bool all = orders.size() * numbers.size() <= kMaxTried;
  int32_t best_parts = 1;
  for (const int32_t parts : numbers) {
    if (attempt(orders.front(), parts)) best_parts = parts;
  }
  for (size_t i = 1; i < orders.size(); ++i) {
    for (const int32_t parts : numbers) {
      if (all || parts == best_parts) attempt(orders[i], parts);
    }
  }
  return fastest;
}

}  // namespace lynx
