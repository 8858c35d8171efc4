#include "tests/comparison/curves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/spec/cluster_file.h"
#include "common/status.h"
#include "planner/frameworks/step_estimate.h"
#include "planner/problem/model_presets.h"
#include "planner/search/make_plan.h"

namespace lynx::comparison {
namespace {

constexpr std::array<const char*, kBaselineCount> kNames = {
    "Megatron full", "full, keep collectives", "selective", "block N", "balanced", "no overlap", "store all"};
// The recomputation mode of each Baseline.
constexpr std::array<RecomputeMode, kBaselineCount> kModes = {
    RecomputeMode::kFull,     RecomputeMode::kFullKeepCollectives, RecomputeMode::kSelective, RecomputeMode::kBlock,
    RecomputeMode::kBalanced, RecomputeMode::kNoOverlap,           RecomputeMode::kNone};

absl::StatusOr<PlanRequest> RequestOf(const std::string& source_dir, const Setting& setting) {
  const ModelPreset* preset = FindModelPreset(setting.model);
  if (preset == nullptr) return absl::NotFoundError(absl::StrCat("no model preset is named ", setting.model));
  LYNX_ASSIGN_OR_RETURN(const cli::ClusterFile file,
                        cli::ReadClusterFile(absl::StrCat(source_dir, "/examples/clusters/", setting.cluster, ".yaml")));
  PlanRequest request{.cluster = file.cluster};
  JobSpec& spec = request.spec;
  spec.name = "comparison";
  spec.model = preset->model;
  spec.model.seq = setting.seq;
  spec.train = {.steps = 1, .global_batch = setting.micro_batch * kMicrobatches, .micro_batch = setting.micro_batch};
  spec.resources.min_ranks = spec.resources.max_ranks = setting.tp * setting.pp;
  spec.recompute_options.forbids_offload = true;  // because no other policy here uses the host's memory
  spec.parallel = {.tp = setting.tp,
                   .pp = setting.pp,
                   .dp = 1,
                   .cp = 1,
                   .virtual_stages = 1,
                   .sequence_parallel = Choice::kOff,
                   .schedule = ScheduleKind::kOneForwardOneBackward,
                   .zero = ZeroStage::kNone};
  Normalize(spec);
  // 0: the memory of a device is unknown, so the planner checks only the limit for activations. CurveOf leaves out the limits
  // for which no device has room.
  for (NodeGroup& group : request.cluster.groups) group.memory_per_device = Bytes(0);
  return request;
}

// Returns the plan with this recomputation mode and limit for activations (0: none); nullopt: nothing fits. Without `weave`,
// the plan runs one pass at a time, as all baselines do.
absl::StatusOr<std::optional<Plan>> PlanWith(PlanRequest request, RecomputeMode mode, Bytes limit,
                                             WeaveMode weave = WeaveMode::kOff) {
  request.spec.recompute = mode;
  request.spec.parallel.weave = weave;
  request.spec.resources.activation_memory_per_rank = limit;
  LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlan(request));
  Plan* plan = std::get_if<Plan>(&result);
  return plan == nullptr ? std::nullopt : std::make_optional(std::move(*plan));
}

absl::StatusOr<std::optional<Nanos>> StepOfHeu(const PlanRequest& request, Bytes limit, WeaveMode weave) {
  LYNX_ASSIGN_OR_RETURN(const std::optional<Plan> plan, PlanWith(request, RecomputeMode::kHeu, limit, weave));
  return plan ? std::optional(plan->step) : std::nullopt;
}

std::optional<Nanos> Least(std::optional<Nanos> a, std::optional<Nanos> b) { return a && b ? std::min(*a, *b) : a ? a : b; }

// Returns how much longer a step takes with Megatron-LM's full recomputation than with Lynx's, from a closed form for both.
// Lynx recomputes only what the backward pass reads, and so does its plan for kFull. Megatron-LM runs the whole layer again,
// including its last product and collective.
absl::StatusOr<Nanos> ExtraOfMegatronFull(const PlanRequest& request, const Setting& setting) {
  StepRequest step{.model = request.spec.model,
                   .layout = PinnedLayout(request.spec.parallel),
                   .micro_batch = setting.micro_batch,
                   .microbatches = kMicrobatches,
                   .recompute = RecomputeMode::kFull,
                   .ranks_per_node = request.cluster.least_devices_per_node()};
  const HardwareProfile& profile = request.cluster.groups.front().profile;
  LYNX_ASSIGN_OR_RETURN(const StepEstimate ours, EstimateStep(step, profile));
  step.traits.checkpoints_functions = true;
  LYNX_ASSIGN_OR_RETURN(const StepEstimate theirs, EstimateStep(step, profile));
  return theirs.step - ours.step;
}

// Goes from the largest limit to the smallest, because a policy that does not fit at one limit fits at no smaller limit.
absl::Status AddBaseline(const PlanRequest& request, int baseline, Nanos extra, std::vector<Point>& points) {
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    LYNX_ASSIGN_OR_RETURN(const std::optional<Plan> plan, PlanWith(request, kModes[baseline], point->limit));
    if (!plan) break;
    point->baselines[baseline] = plan->step;
    if (static_cast<Baseline>(baseline) == Baseline::kMegatronFull) *point->baselines[baseline] += extra;
  }
  return absl::OkStatus();
}

double Ratio(std::optional<Nanos> step, std::optional<Nanos> to) {
  return step && to ? static_cast<double>(step->value) / static_cast<double>(to->value) : 0;
}

}  // namespace

const char* BaselineName(Baseline baseline) { return kNames[static_cast<size_t>(baseline)]; }

std::optional<Baseline> Point::Best() const {
  std::optional<Baseline> best;
  for (int i = 0; i < kBaselineCount; ++i) {
    if (baselines[i] && (!best || *baselines[i] <= *Step(*best))) best = static_cast<Baseline>(i);
  }
  return best;
}

double Point::SpeedupOver(std::optional<Nanos> step) const { return Ratio(step, lynx); }
double Point::AloneOver(std::optional<Nanos> step) const { return Ratio(step, alone); }

std::optional<Nanos> Point::BestNotWoven() const {
  const std::optional<Baseline> best = Best();
  return Least(best ? Step(*best) : std::nullopt, Least(alone, halves));
}

const std::vector<double>& Shares() {
  static const auto& shares = *new std::vector<double>{0.15, 0.2, 0.3, 0.45, 0.7, 1};
  return shares;
}

const std::vector<Setting>& Settings() {
  static const auto& settings = *new std::vector<Setting>([] {
    struct Model {
      const char* preset;
      int32_t pp;
      int32_t tokens;  // number of tokens of a microbatch
      std::vector<int32_t> lengths;
    };
    const std::vector<int32_t> gpt = {1024, 2048, 4096};
    const std::vector<Model> models = {{"gpt-1.3b", 4, 8192, gpt},
                                       {"gpt-4.7b", 4, 4096, gpt},
                                       {"gpt-6.7b", 4, 4096, gpt},
                                       {"gpt-12.8b", 4, 4096, gpt},
                                       {"gpt-20.2b", 8, 4096, gpt},
                                       {"gpt-23b", 8, 4096, gpt},
                                       {"llama-7b", 4, 8192, {2048, 4096, 8192}}};
    std::vector<Setting> all;
    for (const char* cluster : {"a100-80gb-nvlink", "a100-40gb-pcie"}) {
      for (const Model& model : models) {
        for (const int32_t seq : model.lengths) {
          all.push_back({cluster, model.preset, seq, 4, model.pp, model.tokens / seq});
        }
      }
    }
    return all;
  }());
  return settings;
}

absl::StatusOr<Curve> CurveOf(const std::string& source_dir, const Setting& setting, const std::vector<double>& shares) {
  LYNX_ASSIGN_OR_RETURN(const PlanRequest request, RequestOf(source_dir, setting));
  LYNX_ASSIGN_OR_RETURN(const cli::ClusterFile file,
                        cli::ReadClusterFile(absl::StrCat(source_dir, "/examples/clusters/", setting.cluster, ".yaml")));
  LYNX_ASSIGN_OR_RETURN(const Nanos extra, ExtraOfMegatronFull(request, setting));
  LYNX_ASSIGN_OR_RETURN(const std::optional<Plan> all, PlanWith(request, RecomputeMode::kNone, Bytes(0)));
  if (!all) return absl::InternalError("a plan without limits does not fit");
  Curve curve{.setting = setting, .unlimited = all->step};
  for (const StagePlan& stage : all->stages) {
    curve.stored = std::max(curve.stored, stage.arena);
    curve.states = std::max(curve.states, stage.states.total());
  }
  const Bytes memory = file.cluster.groups.front().memory_per_device;
  for (const double share : shares) {
    const Bytes limit(static_cast<int64_t>(static_cast<double>(curve.stored.value) * share));
    if (limit + curve.states <= memory) curve.points.push_back({.limit = limit, .share = share});
  }
  for (int i = 0; i < kBaselineCount; ++i) LYNX_RETURN_IF_ERROR(AddBaseline(request, i, extra, curve.points));
  PlanRequest halved = request;
  halved.spec.train.micro_batch /= 2;
  for (Point& point : curve.points) {
    LYNX_ASSIGN_OR_RETURN(point.alone, StepOfHeu(request, point.limit, WeaveMode::kOff));
    LYNX_ASSIGN_OR_RETURN(point.lynx, StepOfHeu(request, point.limit, WeaveMode::kAuto));
    if (setting.micro_batch % 2 != 0) continue;
    LYNX_ASSIGN_OR_RETURN(point.halves, StepOfHeu(halved, point.limit, WeaveMode::kOff));
    LYNX_ASSIGN_OR_RETURN(const std::optional<Nanos> woven, StepOfHeu(halved, point.limit, WeaveMode::kAuto));
    point.lynx = Least(point.lynx, woven);
  }
  return curve;
}

}  // namespace lynx::comparison
