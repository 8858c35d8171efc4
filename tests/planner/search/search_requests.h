// Makes random requests for the tests of the search.
#ifndef LYNX_TESTS_PLANNER_SEARCH_SEARCH_REQUESTS_H_
#define LYNX_TESTS_PLANNER_SEARCH_SEARCH_REQUESTS_H_

#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {

// Returns the profile of a device on which a layer of the models below takes milliseconds. A large part of this time is
// collectives.
inline HardwareProfile SmallGpu() {
  HardwareProfile profile;
  profile.device_kind = "test";
  profile.flops_per_second = 200'000'000'000;
  profile.memory_bytes_per_second = 20'000'000'000;
  profile.op_overhead = Nanos(2'000);
  profile.intra_node = {Nanos(5'000), 2'000'000'000};
  profile.inter_node = {Nanos(20'000), 500'000'000};
  profile.overlap_slowdown_permille = 1100;
  return profile;
}

// Returns a random request with 4 to 16 devices. In most cases, memory is too small to store everything.
inline PlanRequest RandomRequest(std::mt19937_64& rng) {
  PlanRequest request;
  request.target = rng() % 2 ? PlanTarget::kAnyFramework : PlanTarget::kLynxEngine;
  request.spec.model = {.layers = Draw(rng, 4, 10), .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  if (rng() % 2) request.spec.model.attention = AttentionKernel::kFused;
  request.spec.train.global_batch = 8 << Draw(rng, 0, 2);
  const int32_t nodes = 1 << Draw(rng, 0, 2);
  request.cluster = UniformCluster(nodes, 4, SmallGpu());
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 4 * nodes;
  if (rng() % 4) request.spec.resources.activation_memory_per_rank = kKiB * Draw(rng, 600, 6000);
  return request;
}

// Divides the nodes of the request's only group into two kinds, which differ in speed, in memory or in both. In most cases,
// memory is scarce on at least one of them. A cluster of one node gets a second one.
inline void MakeMixed(std::mt19937_64& rng, PlanRequest& request) {
  NodeGroup& one = request.cluster.groups[0];
  if (one.nodes == 1) one.nodes = 2;
  NodeGroup other = one;
  one.name = "one", other.name = "other";
  other.nodes = Draw(rng, 1, one.nodes - 1);
  one.nodes -= other.nodes;
  one.memory_per_device = kMiB * Draw(rng, 6, 40);
  other.memory_per_device = rng() % 3 ? kMiB * Draw(rng, 6, 40) : one.memory_per_device;
  const int32_t slower = rng() % 3 ? Draw(rng, 2, 8) : 2;  // in halves
  other.profile.flops_per_second = other.profile.flops_per_second * 2 / slower;
  other.profile.memory_bytes_per_second = other.profile.memory_bytes_per_second * 2 / slower;
  request.cluster.groups.push_back(std::move(other));
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = request.cluster.devices();
}

// Returns a random request with a memory limit, and with hosts to which tensors can be sent. The hosts have little or much
// memory, and slow or fast links.
inline PlanRequest RandomOffloadRequest(std::mt19937_64& rng) {
  PlanRequest request = RandomRequest(rng);
  request.target = PlanTarget::kAnyFramework;
  request.spec.resources.activation_memory_per_rank = kKiB * Draw(rng, 500, 3000);
  NodeGroup& group = request.cluster.groups[0];
  group.host_memory = kMiB * (int64_t{1} << Draw(rng, 0, 8));
  const int64_t rate = int64_t{500'000'000} << Draw(rng, 0, 6);
  group.profile.host = {Nanos(2'000), rate, rate, rate * 3 / 2, 1030};
  return request;
}

// Returns a random request for a model with experts, whose first layers often have none, with passes that run side by side in
// half of the cases.
inline PlanRequest RandomExpertsRequest(std::mt19937_64& rng) {
  PlanRequest request = RandomRequest(rng);
  ModelSpec& model = request.spec.model;
  model.family = ModelFamily::kLlama;
  model.dropout = 0;
  model.attention = AttentionKernel::kFused;
  model.moe = {.experts = 8, .top_k = Draw(rng, 1, 3), .ffn = 64 << Draw(rng, 0, 3), .capacity = 1.25};
  model.moe.dropless = model.moe.top_k == 2;
  if (rng() % 4) model.moe.dense_layers = Draw(rng, 1, 3);
  request.target = PlanTarget::kAnyFramework;
  if (rng() % 2) request.spec.parallel.weave = WeaveMode::kPairs;
  return request;
}

// Plans every candidate completely and returns the best step. nullopt: no candidate fits.
inline std::optional<Nanos> BestOfAll(const PlanRequest& request, const std::vector<Candidate>& candidates) {
  PlanCaches caches(request);
  std::optional<Nanos> best;
  for (const Candidate& candidate : candidates) {
    const std::optional<Draft> draft =
        LayoutPlanner(request, candidate, caches).Best(Nanos(std::numeric_limits<int64_t>::max()));
    if (draft && (!best || draft->step < *best)) best = draft->step;
  }
  return best;
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_SEARCH_SEARCH_REQUESTS_H_
