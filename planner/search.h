// The search space of hybrid parallelism: every layout and micro-batch that a request allows before memory and speed
// are looked at. Pure.
#ifndef LYNX_PLANNER_SEARCH_H_
#define LYNX_PLANNER_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/plan.h"

namespace lynx {

struct Candidate {
  ParallelLayout layout;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // per replica and step
  bool operator==(const Candidate&) const = default;
};

// In order of ranks, tp, pp, micro-batch: never empty. Ranks lie within the spec's range and the cluster's devices;
// tp is at most the devices of a node and divides heads and ffn; pp is at most the layers; dp * micro_batch divides
// the global batch. Pinned values are obeyed; a micro-batch that is not is a power of two up to 8. InvalidArgument
// names the rule that leaves nothing, and the numbers.
absl::StatusOr<std::vector<Candidate>> Candidates(const JobSpec& spec, const ClusterTopology& cluster);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_H_
