#include "planner/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "planner/infeasible.h"
#include "planner/lowered.h"
#include "planner/plan_caches.h"
#include "planner/plan_search.h"

namespace lynx {
namespace {

bool Offloads(const StagePlan& stage) {
  return std::any_of(stage.program.begin(), stage.program.end(),
                     [](const Action& action) { return action.kind == ActionKind::kOffloadStart; });
}

// What a rank of the stage may have of its node's memory: an even share with the node's other devices; 0 = unknown.
Bytes HostShare(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage) {
  Bytes least;
  for (const int32_t group : GroupsOfStage(cluster, layout, stage)) {
    const NodeGroup& nodes = cluster.groups[static_cast<size_t>(group)];
    const Bytes share = nodes.host_memory / nodes.devices_per_node;
    if (share.value > 0 && (least.value == 0 || share < least)) least = share;
  }
  return least;
}

// Fills in what each stage takes of its hosts' memory. The stage that they have no room for, if any.
std::optional<Infeasible> AddHostMemory(const ClusterTopology& cluster, Plan& plan) {
  for (int32_t index = 0; index < plan.layout.pp; ++index) {
    StagePlan& stage = plan.stages[static_cast<size_t>(index)];
    if (!Offloads(stage)) continue;
    const absl::StatusOr<MemoryPlan> memory = FoldLiveness(stage.program, plan.ContextOf(index));
    LYNX_CHECK(memory.ok());
    stage.host = memory->host_peak;
    const Bytes share = HostShare(cluster, plan.layout, index);
    if (share.value == 0 || stage.host <= share) continue;
    return Infeasible{.stage = index,
                      .needed = stage.host,
                      .limit = share,
                      .reason = absl::StrCat("stage ", index, " sends ", FormatBytes(stage.host),
                                             " to the host's memory, of which a device's share is ", FormatBytes(share)),
                      .suggestion = "a smaller recomputeOptions.offloadShare"};
  }
  return std::nullopt;
}

absl::StatusOr<PlanResult> FastestOrWhyNot(const PlanRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target).status());
  LYNX_RETURN_IF_ERROR(CheckLowered(request));
  LYNX_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, LoweredCandidates(request));
  PlanCaches caches(request);
  std::optional<Plan> plan = PlanSearch(request, candidates, caches).Fastest();
  if (!plan) return PlanResult(ExplainInfeasible(request, candidates, caches));
  if (std::optional<Infeasible> lacking = AddHostMemory(request.cluster, *plan)) return PlanResult(*std::move(lacking));
  plan->digest = Sha256Hex(PlanText(*plan));
  return PlanResult(*std::move(plan));
}

}  // namespace

const char* ProofStatusName(ProofStatus status) {
  switch (status) {
    case ProofStatus::kOptimal:
      return "optimal";
    case ProofStatus::kTimeLimit:
      return "time limit";
    case ProofStatus::kModel:
      return "model only";
  }
  return "";
}

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) {
  if (!request.exact) return FastestOrWhyNot(request);
  // The search goes on without a solver that fails, but its plan would claim what nobody looked at.
  absl::Status failure;
  PlanRequest observed = request;
  observed.exact = [&](const RecomputeProblem& problem) {
    absl::StatusOr<StageAnswer> answer = request.exact(problem);
    failure.Update(answer.status());
    return answer;
  };
  absl::StatusOr<PlanResult> result = FastestOrWhyNot(observed);
  LYNX_RETURN_IF_ERROR(failure);
  return result;
}

}  // namespace lynx
