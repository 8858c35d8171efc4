// Finds the fastest layout and recomputation that another framework can run, by closed-form estimates (step_estimate.h,
// memory_estimate.h). MakePlan does this for our own engine, exactly and with more choices. Pure; thread-safe.
#ifndef LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_PLAN_H_
#define LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/cluster_topology.h"
#include "planner/frameworks/framework.h"
#include "planner/frameworks/memory_estimate.h"
#include "planner/frameworks/step_estimate.h"

namespace lynx {

struct FrameworkPlan {
  Framework framework = Framework::kLynx;
  StepRequest request;  // layout, micro-batch and recomputation
  StepEstimate step;
  std::vector<MemoryEstimate> memory;  // the index is the pipeline rank
  Bytes device_memory;                 // memory of a device for the job; 0 = unknown
  int32_t most_layers = 0;             // the largest number of layers of a pipeline rank
  int32_t most_dense = 0;              // how many of this rank's layers are without experts, if other layers have them

  // What the layers of this rank take in all microbatches.
  Nanos OfLayers(Nanos LayerEstimate::*time) const;
  Bytes peak() const;  // the memory of the fullest rank
  bool fits() const { return device_memory.value == 0 || peak() <= device_memory; }
};

// Estimates the step and the memory of one request, whether it fits or not. `cluster` has one group of nodes. Returns
// InvalidArgument if the cluster has several groups, and as EstimateStep does. Other frameworks than Lynx keep the masks of
// dropout, whatever the model says.
absl::StatusOr<FrameworkPlan> EstimateOn(const StepRequest& request, Framework framework, const ClusterTopology& cluster);

// Returns the fastest of all layouts, micro-batches and recomputations (none, full, selective where attention is not fused,
// some sets of modules of Megatron Core, and torchtitan's checkpointing by op) that the job allows, that the framework can run,
// and that fit. If none fits, returns the one that needs the least memory: fits() is false. Returns InvalidArgument if the
// cluster has several groups of nodes, if the job pins what the framework does not have or an estimate does not count (an
// activation limit, offloading, another order of ranks, a recomputation that differs by layer or that only Lynx has), or if the
// framework can run no layout that the job allows.
absl::StatusOr<FrameworkPlan> PlanForFramework(const JobSpec& spec, const ClusterTopology& cluster, Framework framework);
// The same with other traits than TraitsOf(framework) has, for a framework that is set up in another way.
absl::StatusOr<FrameworkPlan> PlanForFramework(const JobSpec& spec, const ClusterTopology& cluster, Framework framework,
                                               const FrameworkTraits& traits);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_PLAN_H_
