#include "bench/gpu_step/benchmark.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "agent/agent_profile.h"
#include "agent/measurement.h"
#include "bench/overlap/training_run.h"
#include "bench/throughput/pytorch_side.h"
#include "common/status.h"
#include "planner/cost/cluster_topology.h"
#include "planner/problem/layer_graph.h"
#include "planner/search/make_plan.h"

namespace lynx::bench {
namespace {

// A number of steps that no run reaches: the benchmark stops each run before.
constexpr int64_t kEndlessSteps = 1'000'000;

struct Policy {
  std::string name;
  RecomputeMode mode;
  int32_t limit_percent = 0;  // limit of the arena, in percent of the arena under full recomputation; 0: no limit
};

std::vector<Policy> PoliciesOf(const StepBenchOptions& options) {
  std::vector<Policy> policies = {
      {"recomputes nothing", RecomputeMode::kNone}, {"full", RecomputeMode::kFull}, {"selective", RecomputeMode::kSelective}};
  for (const int32_t percent : options.limit_percents) {
    policies.push_back({absl::StrCat("Lynx (HEU), ", percent, "%"), RecomputeMode::kHeu, percent});
  }
  return policies;
}

constexpr const char* kPytorch[] = {"PyTorch, eager", "PyTorch, compiled"};

JobSpec SpecOf(const StepBenchOptions& options, const BenchModel& model) {
  JobSpec spec;
  spec.name = "gpu-step";
  spec.model = model.model;
  spec.data = {.kind = DataKind::kText, .path = options.data};
  spec.train.steps = kEndlessSteps;
  spec.train.micro_batch = model.micro_batch;
  spec.train.global_batch = static_cast<int32_t>(model.samples());
  spec.train.seed = 7;
  spec.resources.min_ranks = spec.resources.max_ranks = 1;
  spec.parallel = {.tp = 1,
                   .pp = 1,
                   .dp = 1,
                   .cp = 1,
                   .virtual_stages = 1,
                   .sequence_parallel = Choice::kOff,
                   .schedule = ScheduleKind::kOneForwardOneBackward,
                   .zero = ZeroStage::kNone,
                   .weave = WeaveMode::kOff};
  Normalize(spec);
  return spec;
}

// The measured passes of the ops, and how often a step runs each of them.
std::vector<OpRow> RowsOf(const ShapeTimes& times, const BenchModel& model) {
  constexpr std::pair<Pass, Nanos OpTimes::*> kPasses[] = {
      {Pass::kForward, &OpTimes::forward}, {Pass::kBackward, &OpTimes::backward}, {Pass::kWeight, &OpTimes::weight}};
  constexpr const char* kPassNames[] = {"forward", "backward", "weight gradient"};
  std::vector<OpRow> rows;
  for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
    for (size_t i = 0; i < std::size(kPasses); ++i) {
      const auto [pass, field] = kPasses[i];
      const Nanos time = times.ops[static_cast<size_t>(info.op)].*field;
      if (time == Nanos(0)) continue;
      const int64_t layers = info.layer_type == LayerType::kTransformer ? model.model.layers : 1;
      rows.push_back({.op = EnumName(info.op),
                      .pass = kPassNames[i],
                      .runs = layers * model.microbatches,
                      .time = time,
                      .flops = OpFlops(info.op, pass, times.shape),
                      .bytes = OpTraffic(info.op, pass, times.shape)});
    }
  }
  return rows;
}

void LeaveOut(CaseResult& row, const absl::Status& status) {
  row.error = absl::StrReplaceAll(status.message(), {{"\n", " "}, {"|", "/"}});  // the error becomes a cell of a Markdown table
  row.left_out = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) || absl::IsNotFound(status);
}

}  // namespace

double StepBenchmark::SecondsSinceBegin() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

bool StepBenchmark::OutOfTime() const { return options_.budget_seconds > 0 && SecondsSinceBegin() >= options_.budget_seconds; }

Nanos StepBenchmark::LimitNow() const {
  const double left = options_.budget_seconds > 0 ? options_.budget_seconds - SecondsSinceBegin() : options_.case_seconds;
  return NanosFromSeconds(std::clamp(left, 0.0, options_.case_seconds));
}

absl::StatusOr<MeasureResult> StepBenchmark::MeasureShapes(const std::vector<LayerShape>& shapes) const {
  options_.may_start();
  const Nanos limit = LimitNow();
  // The process ends some time after its budget. The budget is half of the limit, because a process that is killed at the limit
  // has no result.
  const double budget = std::min(options_.measure_seconds, Seconds(limit) / 2);
  return agent::MeasureDevices(
      {.rank_binary = options_.rank_binary, .directory = options_.folder, .budget_seconds = budget, .limit = limit},
      {device_.device}, shapes, WakeEvent());
}

absl::Status StepBenchmark::Measure(const JobSpec& spec, ModelResult& model) const {
  absl::StatusOr<MeasureResult> measured =
      MeasureShapes({ShapeOf(spec.model, PinnedLayout(spec.parallel), spec.train.micro_batch)});
  if (!measured.ok() && !OutOfTime()) {
    // If the times of the ops cannot be measured, the steps still can. Then the predictions use only the measured rates.
    model.ops_error = std::string(measured.status().message());
    measured = MeasureShapes({});
  }
  LYNX_ASSIGN_OR_RETURN(model.rates, std::move(measured));
  if (model.rates.measured.empty()) {
    if (model.ops_error.empty())
      model.ops_error =
          "the time for it was used up before (--measure-seconds, or half of --case-seconds or of what is left of --budget)";
    return absl::OkStatus();
  }
  const ShapeTimes& times = model.rates.measured.front();
  model.ops = RowsOf(times, model.model);
  const double megas = static_cast<double>(ModelParameters(spec.model)) / (1 << 20);
  model.optimizer = Nanos(static_cast<int64_t>(megas * static_cast<double>(times.optimizer_per_mega_parameter.value)));
  return absl::OkStatus();
}

absl::StatusOr<PlanResult> StepBenchmark::PlanOf(const JobSpec& spec, RecomputeMode mode, Bytes limit,
                                                 const ModelResult& model) const {
  agent::AgentProfile profile({Nanos(0), 1'000'000'000}, 0);  // one rank uses no link
  profile.RecordDevices({.kind = agent::MeasureTaskKind::kRates}, model.rates);
  PlanRequest request{.spec = spec, .cluster = UniformCluster(1, 1, *profile.Profile(), device_.device.memory)};
  request.spec.recompute = mode;
  request.spec.resources.activation_memory_per_rank = limit;
  return MakePlan(request);
}

void StepBenchmark::MakePlans(Work& work, ModelResult& model) const {
  const std::vector<Policy> policies = PoliciesOf(options_);
  Bytes full;  // arena
  for (size_t i = 0; i < policies.size(); ++i) {
    CaseResult& row = model.cases[i];
    if (policies[i].limit_percent > 0 && full == Bytes(0)) {
      LeaveOut(row, absl::ResourceExhaustedError("its limit follows from full recomputation, which has no plan"));
      continue;
    }
    const Bytes limit = full / 100 * policies[i].limit_percent;
    absl::StatusOr<PlanResult> result = PlanOf(work.spec, policies[i].mode, limit, model);
    if (!result.ok()) {
      LeaveOut(row, result.status());
      continue;
    }
    if (const auto* refused = std::get_if<Infeasible>(&*result)) {
      LeaveOut(row, absl::ResourceExhaustedError(refused->reason));
      continue;
    }
    Plan& plan = std::get<Plan>(*result);
    const StagePlan& stage = plan.stages.front();
    if (policies[i].mode == RecomputeMode::kFull) full = stage.arena;
    row.predicted = {.step = plan.step, .parts = PartsOf(stage), .arena = stage.arena, .states = stage.states.total()};
    // Two policies can have the same program: with fused attention, for example, the selective policy recomputes nothing.
    for (size_t j = 0; j < i; ++j) {
      if (work.plans[j] && work.plans[j]->stages.front().program == stage.program) {
        row.error = absl::StrCat("its plan is that of '", model.cases[j].name, "'");
        row.left_out = true;
      }
    }
    if (row.error.empty()) work.plans[i] = std::move(plan);
  }
}

StepBenchmark::Work StepBenchmark::Prepare(ModelResult& model) {
  Work work{.spec = SpecOf(options_, model.model)};
  model.model.model = work.spec.model;  // normalized
  for (const Policy& policy : PoliciesOf(options_)) model.cases.push_back({.name = policy.name});
  if (!options_.pytorch.empty()) {
    for (const char* name : kPytorch) model.cases.push_back({.name = name});
  }
  work.plans.resize(model.cases.size());
  const absl::Status measured =
      OutOfTime() ? absl::DeadlineExceededError("the budget was used up before") : Measure(work.spec, model);
  if (!measured.ok()) {
    model.error = std::string(measured.message());
    std::fprintf(stderr, "%7.1f s  %s: %s\n", SecondsSinceBegin(), model.model.name.c_str(), model.error.c_str());
    for (CaseResult& row : model.cases) LeaveOut(row, measured);
    return work;
  }
  MakePlans(work, model);
  return work;
}

absl::Status StepBenchmark::RunLynx(const JobSpec& spec, const Plan& plan, Nanos limit, CaseResult& row,
                                    StepBenchResult& result) {
  options_.may_start();
  const agent::NodeDevice& device = device_.device;
  LYNX_ASSIGN_OR_RETURN(TrainingRun run, Train(spec, plan, network_,
                                               {.rank_binary = options_.rank_binary,
                                                .folder = options_.folder,
                                                .cores = device.cores,
                                                .cores_per_rank = static_cast<int32_t>(device.cores.size()),
                                                .device = {.kind = device.kind, .index = device.index, .uuid = device.uuid},
                                                .warmup_steps = options_.warmup,
                                                .stop_after = int64_t{options_.warmup} + options_.steps,
                                                .limit = limit}));
  std::vector<double> steps;
  for (const StepReport& step : run.steps.front()) {
    steps.push_back(Millis(step.duration));
    if (device.kind == DeviceKind::kCpu) row.device_peak = std::max(row.device_peak.value_or(Bytes(0)), step.resident);
  }
  row.round_ms.push_back(MedianOf(steps));
  row.step_ms.insert(row.step_ms.end(), steps.begin(), steps.end());
  row.steps.insert(row.steps.end(), run.steps.front().begin(), run.steps.front().end());
  row.ready = run.ready.front();
  result.foreign_share = std::max(result.foreign_share, run.foreign_share);
  return absl::OkStatus();
}

absl::Status StepBenchmark::RunPytorch(const BenchModel& model, bool compile, Nanos limit, CaseResult& row) const {
  options_.may_start();
  LYNX_ASSIGN_OR_RETURN(const PytorchRun run, TrainWithPytorch({.python = options_.python,
                                                                .script = options_.pytorch,
                                                                .data = options_.data,
                                                                .model = model.model,
                                                                .micro_batch = model.micro_batch,
                                                                .microbatches = model.microbatches,
                                                                .warmup = options_.warmup,
                                                                .steps = options_.steps,
                                                                .cores = device_.device.cores,
                                                                .device = device_.device.kind,
                                                                .gpu = device_.device.uuid,
                                                                .compile = compile,
                                                                .limit = limit}));
  row.round_ms.push_back(MedianOf(run.step_ms));
  row.step_ms.insert(row.step_ms.end(), run.step_ms.begin(), run.step_ms.end());
  row.device_peak = run.peak_memory;
  return absl::OkStatus();
}

void StepBenchmark::RunCase(const Work& work, size_t index, ModelResult& model, StepBenchResult& result) {
  CaseResult& row = model.cases[index];
  if (!row.error.empty()) return;  // the case has already failed, or has no plan
  if (OutOfTime()) {
    if (row.round_ms.empty()) LeaveOut(row, absl::DeadlineExceededError("the budget was used up before"));
    return;
  }
  absl::Status status;
  {
    const MemoryWatch watch(device_);
    status = work.plans[index] ? RunLynx(work.spec, *work.plans[index], LimitNow(), row, result)
                               : RunPytorch(model.model, row.name == kPytorch[1], LimitNow(), row);
    if (const std::optional<Bytes> peak = watch.Peak()) row.device_peak = std::max(row.device_peak.value_or(Bytes(0)), *peak);
  }
  if (!status.ok() && (row.round_ms.empty() || !OutOfTime())) LeaveOut(row, status);
  std::fprintf(
      stderr, "%7.1f s  %s, %s: %s\n", SecondsSinceBegin(), model.model.name.c_str(), row.name.c_str(),
      status.ok() ? absl::StrFormat("%.2f ms a step", row.round_ms.back()).c_str() : std::string(status.message()).c_str());
}

void StepBenchmark::Run(StepBenchResult& result, const std::function<void()>& progress) {
  std::vector<Work> work;
  for (int32_t round = 0; round < options_.rounds; ++round) {
    for (size_t m = 0; m < result.models.size(); ++m) {
      if (round == 0) work.push_back(Prepare(result.models[m]));
      for (size_t index = 0; index < work[m].plans.size(); ++index) {
        RunCase(work[m], index, result.models[m], result);
        result.seconds = SecondsSinceBegin();
        progress();
      }
    }
  }
}

}  // namespace lynx::bench
