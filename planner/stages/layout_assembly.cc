// LayoutPlanner::Assemble makes the plan of a draft.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "common/check.h"
#include "planner/problem/batch_split.h"
#include "planner/program/memory_model.h"
#include "planner/stages/layout_planner.h"

namespace lynx {
namespace {

constexpr Bytes kUnlimited{std::numeric_limits<int64_t>::max()};

// The nodes on which the ranks run. Empty if the cluster has one group, or groups without names.
std::vector<NodeRun> NodesOf(const ClusterTopology& cluster, int32_t ranks) {
  std::vector<NodeRun> runs;
  if (cluster.groups.size() == 1) return runs;
  for (const NodeGroup& group : cluster.groups) {
    if (group.name.empty()) return {};
    if (ranks <= 0) break;
    const int32_t nodes = std::min(group.nodes, (ranks + group.devices_per_node - 1) / group.devices_per_node);
    ranks -= nodes * group.devices_per_node;
    runs.push_back({group.name, nodes});
  }
  return runs;
}

}  // namespace

int64_t Draft::actions() const {
  int64_t actions = 0;
  for (const Program& program : programs) actions += static_cast<int64_t>(program.size());
  return actions;
}

// True if the whole programs would be very long, and the request allows shorter ones.
bool LayoutPlanner::MayShorten(const Draft& draft) const {
  if (request_.most_program_actions == 0 || !shorter_) return false;
  const int64_t whole = shorter_->Extrapolated(candidate_.microbatches, draft.actions_of_fewer, draft.actions());
  return whole > request_.most_program_actions;
}

// The stage's times in the whole step, from its times in the two shorter steps.
StageTimes LayoutPlanner::WholeTimes(const Draft& draft, size_t stage) const {
  const StageTimes &fewer = draft.simulation_of_fewer.stages[stage], &more = draft.simulation.stages[stage];
  StageTimes whole;
  for (Nanos StageTimes::*time :
       {&StageTimes::forward, &StageTimes::backward, &StageTimes::weight, &StageTimes::optimizer, &StageTimes::recompute_hidden,
        &StageTimes::recompute_exposed, &StageTimes::communication_exposed, &StageTimes::stall, &StageTimes::core_wait}) {
    whole.*time = shorter_->Extrapolated(candidate_.microbatches, fewer.*time, more.*time);
  }
  return whole;
}

// Returns the stage with this index of the last refused plan, if it has the same program; otherwise null. The memory of this
// stage need not be planned again: PlanMemory gets the program, its layers, and the limit plus the reserve, and these are all
// the same.
const StagePlan* LayoutPlanner::FindRefused(int32_t stage, const Program& program) const {
  const auto at = static_cast<size_t>(stage);
  return at < refused_.size() && refused_[at].program == program ? &refused_[at] : nullptr;
}

std::optional<Plan> LayoutPlanner::Assemble(Draft draft) {
  const bool shortened = draft.microbatches != candidate_.microbatches && MayShorten(draft);
  if (draft.microbatches != candidate_.microbatches && !shortened) Run(draft, candidate_.microbatches);
  const BatchSplit split{request_.spec.train.global_batch, candidate_.layout.dp, candidate_.micro_batch};
  Plan plan{.model = request_.spec.model,
            .layout = candidate_.layout,
            .micro_batch = candidate_.micro_batch,
            .microbatches = candidate_.microbatches,
            .empty_places = static_cast<int32_t>(split.EmptyPlaces()),
            .program_microbatches = shortened ? draft.microbatches : 0,
            .mode = draft.mode,
            .activation_limit = request_.spec.resources.activation_memory_per_rank,
            .step = draft.step,
            .measured_profile = fits_.costs().measured(),
            .nodes = NodesOf(request_.cluster, candidate_.layout.ranks())};
  const std::vector<StageContext> contexts = Contexts(draft.layers, draft.microbatches);
  bool fits = true;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const StageContext& context = contexts[stage];
    const StageTimes whole = shortened ? WholeTimes(draft, static_cast<size_t>(stage)) : StageTimes();
    const StageTimes& times = shortened ? whole : draft.simulation.stages[stage];
    StagePlan part{.slices = {}, .program = std::move(draft.programs[stage])};
    const StagePlan* known = FindRefused(stage, part.program);
    for (size_t chunk = 0; chunk < context.slices.size(); ++chunk) {
      const StageSlice& slice = context.slices[chunk];
      part.slices.push_back({slice.stage, slice.first_layer, slice.end_layer, draft.policies[stage][chunk]});
    }
    const std::optional<Bytes> limit = fits_.Limit(context);
    const Bytes enough = limit ? *limit + fits_.reserve(stage) : kUnlimited;
    if (known != nullptr) {
      part.arena = known->arena;
      part.live_peak = known->live_peak;
      part.host = known->host;
    } else {
      const absl::StatusOr<MemoryPlan> memory = PlanMemory(part.program, context, enough);
      LYNX_CHECK(memory.ok());
      part.arena = memory->arena;
      part.live_peak = memory->live_peak;
      part.host = memory->host_peak;
    }
    const Bytes share = fits_.HostShare(stage, draft.layers[stage], part.arena);
    if (draft.offloading && part.host > share) {
      fits_.ReserveHost(stage, draft.policies[stage], part.host, share);
      fits = false;
    }
    part.states = StatesOf(context);
    part.forward = times.forward;
    part.backward = times.backward;
    part.weight = times.weight;
    part.optimizer = times.optimizer;
    part.recompute_hidden = times.recompute_hidden;
    part.recompute_exposed = times.recompute_exposed;
    part.communication_exposed = times.communication_exposed;
    part.stall = times.stall;
    part.core_wait = times.core_wait;
    if (!draft.proofs.empty()) part.proof = draft.proofs[stage];
    if (limit) {
      if (request_.spec.resources.activation_memory_per_rank.value == 0) {
        plan.activation_limit = std::max(plan.activation_limit, enough);
      }
      const Bytes excess = part.arena - enough;
      if (excess.value > 0) {
        // Reserves enough memory that the same policy does not seem to fit again.
        const Bytes seemed = *fits_.Limit(stage, draft.layers[stage]);
        fits_.Reserve(stage, std::max(excess, seemed - part.live_peak + Bytes(1)));
        fits = false;
      }
    }
    plan.stages.push_back(std::move(part));
  }
  if (fits) return plan;
  refused_ = std::move(plan.stages);
  return std::nullopt;
}

}  // namespace lynx
