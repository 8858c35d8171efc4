#include "planner/search/arrangement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/supported.h"
#include "planner/search/make_plan.h"
#include "planner/search/plan_among.h"

namespace lynx {
namespace {

// Among more groups than this, only the given order and the reverse order are tried in each part.
constexpr size_t kMaxPermutedGroups = 3;
// If there are more arrangements than this, FastestArrangement tries only some of them.
constexpr size_t kMaxTried = 8;

// All numbers that divide the number of nodes of every group.
std::vector<int32_t> NumbersOfParts(const ClusterTopology& cluster) {
  int32_t common = 0;
  for (const NodeGroup& group : cluster.groups) common = std::gcd(common, group.nodes);
  std::vector<int32_t> numbers;
  for (int32_t parts = 1; parts <= common; ++parts) {
    if (common % parts == 0) numbers.push_back(parts);
  }
  return numbers;
}

std::vector<std::vector<size_t>> OrdersOfGroups(size_t groups) {
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<size_t>> orders;
  if (groups > kMaxPermutedGroups) return {order, {order.rbegin(), order.rend()}};
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// The cluster in `parts` equal parts, each with its groups in the order `order`.
ClusterTopology Arranged(const ClusterTopology& cluster, const std::vector<size_t>& order, int32_t parts) {
  ClusterTopology arranged;
  std::vector<int32_t> first_device;  // of each group of `cluster`
  int32_t devices = 0;
  for (const NodeGroup& group : cluster.groups) first_device.push_back(std::exchange(devices, devices + group.devices()));
  std::vector<int32_t> moved(static_cast<size_t>(devices));  // the new number of each device
  int32_t next = 0;
  for (int32_t part = 0; part < parts; ++part) {
    for (const size_t index : order) {
      NodeGroup group = cluster.groups[index];
      group.nodes /= parts;
      const int32_t first = first_device[index] + part * group.devices();
      for (int32_t device = 0; device < group.devices(); ++device) moved[static_cast<size_t>(first + device)] = next++;
      arranged.groups.push_back(std::move(group));
    }
  }
  for (SharedCores shared : cluster.shared_cores) {
    std::erase_if(shared.devices, [&](int32_t device) { return device >= devices; });
    for (int32_t& device : shared.devices) device = moved[static_cast<size_t>(device)];
    std::sort(shared.devices.begin(), shared.devices.end());
    if (!shared.devices.empty()) arranged.shared_cores.push_back(std::move(shared));
  }
  return arranged;
}

// Returns the step of the fastest plan; nullopt: there is none. Of large programs, only the most promising are simulated.
std::optional<Nanos> StepOn(PlanRequest request, ClusterTopology cluster) {
  request.cluster = std::move(cluster);
  const absl::StatusOr<std::vector<Candidate>> candidates = SupportedCandidates(request);
  if (!candidates.ok()) return std::nullopt;
  PlanCaches caches(request);
  const absl::StatusOr<std::optional<Plan>> plan = PlanAmong(request, *candidates, caches, {.effort = SearchEffort::kGlance});
  return plan.ok() && *plan ? std::optional((*plan)->step) : std::nullopt;
}

}  // namespace

std::vector<ClusterTopology> Arrangements(const ClusterTopology& cluster) {
  if (cluster.groups.size() < 2) return {cluster};
  std::vector<ClusterTopology> arrangements;
  for (const std::vector<size_t>& order : OrdersOfGroups(cluster.groups.size())) {
    for (const int32_t parts : NumbersOfParts(cluster)) arrangements.push_back(Arranged(cluster, order, parts));
  }
  return arrangements;
}

// If there are many arrangements, first tries all numbers of parts in the given order of groups, then all orders of groups with
// the best number.
ClusterTopology FastestArrangement(const PlanRequest& request) {
  const ClusterTopology& given = request.cluster;
  if (given.groups.size() < 2 || !CheckCluster(given).ok() || !CheckSupported(request).ok()) return given;
  PlanRequest without_solver = request;
  if (request.spec.recompute == RecomputeMode::kOpt) without_solver.spec.recompute = RecomputeMode::kHeu;
  without_solver.exact = nullptr;
  ClusterTopology fastest = given;
  std::optional<Nanos> step = StepOn(without_solver, given);
  const auto attempt = [&](const std::vector<size_t>& order, int32_t parts) {
    ClusterTopology arranged = Arranged(given, order, parts);
    const std::optional<Nanos> other = StepOn(without_solver, arranged);
    if (!other || (step && *other >= *step)) return false;
    step = other;
    fastest = std::move(arranged);
    return true;
  };
  const std::vector<std::vector<size_t>> orders = OrdersOfGroups(given.groups.size());
  const std::vector<int32_t> numbers = NumbersOfParts(given);
  const bool all = orders.size() * numbers.size() <= kMaxTried;
  int32_t best_parts = 1;
  for (const int32_t parts : numbers) {
    if (parts > 1 && attempt(orders.front(), parts)) best_parts = parts;
  }
  for (size_t i = 1; i < orders.size(); ++i) {
    for (const int32_t parts : numbers) {
      if (all || parts == best_parts) attempt(orders[i], parts);
    }
  }
  return fastest;
}

}  // namespace lynx
