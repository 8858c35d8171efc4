// The search space of hybrid parallelism: every layout and micro-batch that a request allows before memory and speed
// are looked at. Pure.
#ifndef LYNX_PLANNER_CANDIDATES_SEARCH_H_
#define LYNX_PLANNER_CANDIDATES_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx {

struct Candidate {
  ParallelLayout layout;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // per replica and step
  bool operator==(const Candidate&) const = default;
};

// A micro-batch that is left open is a power of two up to this.
inline constexpr int32_t kMaxAutoMicroBatch = 8;

// In order of ranks, tp, pp, micro-batch, then the other degrees and modes from the plain ones on: never empty. Ranks
// lie within the spec's range and the cluster's devices; tp is at most the devices of the smallest node and divides
// heads, key heads and ffn; the schedule's parts of the model (pp * virtual stages; pp * 2 for zero-bubble-v) are at
// most the layers; dp * micro_batch divides the global batch; cp halves of the sequence divide it. Pinned values are
// obeyed. What is left open: a micro-batch is a power of two up to 8, virtual stages are 1 to 8, and a schedule is
// 1F1B, zero-bubble or, with virtual stages, interleaved (GPipe is never faster than 1F1B, and Chimera holds every
// weight twice: both are taken when asked for). Replicas share out nothing or the optimizer's states, or, with
// PlanTarget::kAnyFramework, gradients and weights too; cp is 1, or then a power of two up to 8.
// InvalidArgument names the rule that leaves nothing, and the numbers (planner/candidates/no_layout.h).
absl::StatusOr<std::vector<Candidate>> Candidates(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target);
// The same, empty where there is none.
std::vector<Candidate> SearchSpace(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target);

// Shapes whose op times MakePlan would like measured: one per (tp, micro_batch); CostModel derives sequence parallelism's.
std::vector<LayerShape> WantedShapes(const JobSpec& spec, const ClusterTopology& cluster);

// Whether the planner may choose to send tensors to the host: not where no host is known to have memory for them, nor
// under a policy that says itself what goes, or where the job forbids it.
bool OffersOffloading(const PlanRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_SEARCH_H_
