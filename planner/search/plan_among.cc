#include "planner/search/plan_among.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/candidates/supported.h"

namespace lynx {
namespace {

// Maximum number of searches if the request itself names the offloaded share. If the plan of a search lacks host memory, its
// candidate is removed and the next search begins. After the last search, the request counts as infeasible.
constexpr int kMaxSearches = 8;
// A woven plan must be faster by at least 1 / kWorthWeaving of the step. A smaller gain is less than the error of predictions.
constexpr int64_t kWorthWeaving = 200;
// Maximum number of pipeline stages for which the planner tries to weave neighbouring passes. They overlap only on the first
// stage, so with many stages this saves little. With 16 stages, the step of a plan for 4,096 devices became 0.03% shorter, but
// a large program had to be simulated.
constexpr int32_t kMaxStagesOfNeighbours = 8;

// Returns the first stage that offloads more than the memory of its nodes can hold. There can be such a stage only if the
// request itself names the offloaded share.
std::optional<Infeasible> LackingHostMemory(const ClusterTopology& cluster, const Plan& plan) {
  for (int32_t index = 0; index < plan.layout.pp; ++index) {
    const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
    const std::optional<Bytes> share = HostShareOfStage(cluster, plan.layout, index, stage.states.total() + stage.arena);
    if (stage.host.value == 0 || !share || stage.host <= *share) continue;
    return Infeasible{.stage = index,
                      .needed = stage.host,
                      .limit = *share,
                      .reason = absl::StrCat("stage ", index, " sends ", FormatBytes(stage.host),
                                             " to the host's memory, of which a device's share is ", FormatBytes(*share)),
                      .suggestion = "a smaller recomputeOptions.offloadShare"};
  }
  return std::nullopt;
}

// If the planner has the choice, replaces `plan` with a faster plan whose passes run side by side. Such a plan needs at least
// the memory of the same layout without weaving, so it is sought only if `plan` exists. Each way to weave has a search of its
// own, because guesses are comparable only for plans that are woven in the same way. The simulated step of a woven plan is
// rarely shorter than its guess, so the smallest ratio of step to guess that is expected (least_ratio) is 1 at first. If the
// search for pairs has to simulate large programs, the smallest ratio that it finds is expected for quads, too.
void WeaveIfFaster(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                   int64_t* solved_stages_left, Plan& plan) {
  if (!MayChooseWeave(request)) return;
  double least_ratio = 1;
  const auto take = [&](const std::vector<Candidate>& from, WeaveMode weave) {
    std::vector<Candidate> woven = WovenCandidates(from, weave);
    EraseUnsupported(request.spec.model, woven);
    if (woven.empty()) return;
    // Lowering and folding take many times as long for a woven program as for a plain one. So only the most promising
    // candidates are simulated.
    PlanSearch search(request, woven, caches, SearchEffort::kGlance);
    if (solved_stages_left != nullptr) search.LimitSolvedStages(*solved_stages_left);
    const Nanos to_beat = plan.step - plan.step / kWorthWeaving;
    std::optional<Plan> faster = search.FastestBelow(to_beat, weave == WeaveMode::kNeighbours ? 1 : least_ratio);
    if (solved_stages_left != nullptr) *solved_stages_left -= search.counts().solved_stages;
    least_ratio = search.RatioOfLargePrograms().value_or(least_ratio);
    if (faster && faster->step < to_beat && !LackingHostMemory(request.cluster, *faster)) plan = *std::move(faster);
  };
  const Candidate plain{plan.layout, plan.micro_batch, plan.microbatches};
  for (const WeaveMode weave : kGroupedWeaves) take(candidates, weave);
  const bool woven = plan.layout.weave != WeaveMode::kOff;
  if (!woven && plan.layout.pp > 1 && plan.layout.pp <= kMaxStagesOfNeighbours) take({plain}, WeaveMode::kNeighbours);
}

absl::StatusOr<std::optional<Plan>> FastestWithHostMemory(const PlanRequest& request, std::vector<Candidate> candidates,
                                                          PlanCaches& caches, const PlanAmongOptions& options) {
  for (int searches = 0; searches < kMaxSearches && !candidates.empty(); ++searches) {
    PlanSearch search(request, candidates, caches, options.effort);
    int64_t* const left = options.to_beat ? options.solved_stages_left : nullptr;
    if (left != nullptr) search.LimitSolvedStages(*left);
    std::optional<Plan> plan = options.to_beat ? search.FastestBelow(*options.to_beat) : search.Fastest();
    if (left != nullptr) *left -= search.counts().solved_stages;
    if (!plan) break;
    std::optional<Infeasible> lacking = LackingHostMemory(request.cluster, *plan);
    if (!lacking) {
      WeaveIfFaster(request, candidates, caches, left, *plan);
      LYNX_ASSIGN_OR_RETURN(plan, FinishedPlan(*std::move(plan)));
      return plan;
    }
    if (options.lacking_host != nullptr && !*options.lacking_host) *options.lacking_host = std::move(lacking);
    std::erase(candidates, Candidate{plan->layout, plan->micro_batch, plan->microbatches});
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<Plan>> PlanAmong(const PlanRequest& request, std::vector<Candidate> candidates, PlanCaches& caches,
                                              const PlanAmongOptions& options) {
  if (!request.exact) return FastestWithHostMemory(request, std::move(candidates), caches, options);
  // If the solver fails, the search continues without exact solutions. The plan that it finds would claim proofs that the
  // solver has not made. So the failure is returned, not the plan.
  absl::Status failure;
  PlanRequest observed = request;
  observed.exact = [&](const RecomputeProblem& problem) {
    absl::StatusOr<StageAnswer> answer = request.exact(problem);
    failure.Update(answer.status());
    return answer;
  };
  absl::StatusOr<std::optional<Plan>> plan = FastestWithHostMemory(observed, std::move(candidates), caches, options);
  LYNX_RETURN_IF_ERROR(failure);
  return plan;
}

}  // namespace lynx
