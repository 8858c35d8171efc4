// The search space of hybrid parallelism: every layout and micro-batch that a request allows. Memory and speed are not
// considered yet. Pure.
#ifndef LYNX_PLANNER_CANDIDATES_SEARCH_H_
#define LYNX_PLANNER_CANDIDATES_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"
#include "planner/problem/batch_split.h"

namespace lynx {

struct Candidate {
  ParallelLayout layout;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;  // per replica and step
  bool operator==(const Candidate&) const = default;
};

// True if a space has candidates with this split of the batch. `even_batches`: see PlanRequest.
inline bool Allows(const BatchSplit& split, bool even_batches) { return split.Possible() && (split.Even() || !even_batches); }

// If the user leaves the micro-batch size open, it is a power of two up to this value.
inline constexpr int32_t kMaxAutoMicroBatch = 8;

// Returns all candidates; the list is never empty. They are ordered by ranks, tp, pp, micro-batch, then by the other degrees
// and modes; default values come first. All candidates obey these rules. The number of ranks is within the spec's range and the
// cluster's devices. tp is at most the number of devices of the smallest node and the vocabulary size, and divides heads, key
// heads and ffn. The schedule divides the model into at most as many parts as there are layers (pp * virtual stages, or pp * 2
// with zero-bubble-v). If cp > 1, 2 * cp divides the sequence.
//
// The batch: with `even_batches`, dp * micro_batch divides the global batch. Otherwise the last microbatch of a replica may
// have empty places (planner/problem/batch_split.h). If several numbers of replicas leave places empty and need the same number
// of microbatches, only the least and the greatest are candidates: the least uses the fewest ranks, and with the greatest each
// rank holds the smallest share of the optimizer's states.
//
// Pinned values are kept. Values that are left open are chosen as follows. A micro-batch is a power of two up to 8. Virtual
// stages are 1 to 8, and up to 64 where every chunk then has as many layers. A schedule is 1F1B, zero-bubble or, with virtual
// stages, interleaved. (GPipe is never faster than 1F1B, and Chimera holds every weight twice, so both are used only if the job
// asks for them.) Replicas shard nothing or the optimizer states; with PlanTarget::kAnyFramework, also gradients and weights.
// cp is 1, or with kAnyFramework a power of two up to 8. Ranks are numbered in both orders, if the order decides which link two
// ranks have. Returns InvalidArgument with the rule that excludes every layout, and the numbers
// (planner/candidates/no_layout.h).
absl::StatusOr<std::vector<Candidate>> Candidates(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target,
                                                  bool even_batches = false);
// Returns the same list as Candidates. If there is no candidate, it returns an empty list and no error.
std::vector<Candidate> SearchSpace(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target,
                                   bool even_batches = false);

// True if the planner decides whether passes run side by side: the job leaves it open, and Lynx itself runs the plan. (Other
// frameworks have no option for this.)
bool MayChooseWeave(const PlanRequest& request);

// Returns a copy, with this ParallelLayout::weave, of each candidate whose passes do not run side by side. Leaves out
// candidates without tensor parallelism (they have nothing to weave), with too few microbatches, or whose schedule does not
// allow it.
std::vector<Candidate> WovenCandidates(const std::vector<Candidate>& candidates, WeaveMode weave);
// The weave modes that the planner tries for every candidate. If they gain nothing, the planner also tries kNeighbours, but
// only in the layout of the plan that it found without weaving, because kNeighbours gains little.
inline constexpr WeaveMode kGroupedWeaves[] = {WeaveMode::kPairs, WeaveMode::kQuads};

// Shapes whose op times MakePlan would like to have measured: one per (tp, micro_batch), at most kMaxWantedShapes. CostModel
// derives the times with sequence parallelism from them. If the first layers of a model with experts have none, the shapes of
// these layers follow (DenseShape). Then there are up to twice as many shapes.
std::vector<LayerShape> WantedShapes(const JobSpec& spec, const ClusterTopology& cluster);
// The shape from whose op times the plan's times were predicted; of the layers with experts, if the model has any. WantedShapes
// may have left it out, because it has a limit.
LayerShape WantedShapeOf(const JobSpec& spec, const Plan& plan);

// True if the planner may choose tensors to offload. False if no host is known to have memory for them, if the job's recompute
// mode does not let the planner choose them, or if the job forbids offloading.
bool OffersOffloading(const PlanRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_SEARCH_H_
