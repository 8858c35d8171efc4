#include "python/extension/planning.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cli/output/output.h"
#include "cli/spec/plan_input.h"
#include "cli/spec/profile_file.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"
#include "node/solver_process.h"
#include "planner/report/chrome_trace.h"
#include "planner/report/html_page.h"
#include "planner/report/plan_table.h"
#include "planner/report/timeline.h"
#include "planner/search/arrangement.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"
#include "python/extension/background.h"
#include "python/extension/errors.h"

namespace lynx::python {
namespace {

using Values = nlohmann::ordered_json;

// As in lynxctl: with this number of actions, planning takes seconds and less than a gigabyte.
constexpr int64_t kMaxProgramActions = 6'000'000;

absl::StatusOr<std::optional<Bytes>> OptionalSize(const std::string& text, const char* name) {
  if (text.empty()) return std::nullopt;
  const absl::StatusOr<Bytes> size = cli::ParseByteSize(text);
  if (!size.ok()) return Annotate(size.status(), name);
  return *size;
}

absl::StatusOr<cli::PlanInput> InputOf(const RequestTexts& texts) {
  cli::PlanInput input{.job = texts.job,
                       .job_name = texts.job_name,
                       .folder = texts.folder,
                       .overrides = texts.overrides,
                       .cluster = texts.cluster,
                       .cluster_name = texts.cluster_name,
                       .profile_name = texts.profile_name,
                       .nodes = texts.nodes,
                       .devices_per_node = texts.devices_per_node};
  LYNX_ASSIGN_OR_RETURN(input.device_memory, OptionalSize(texts.device_memory, "device_memory"));
  LYNX_ASSIGN_OR_RETURN(input.host_memory, OptionalSize(texts.host_memory, "host_memory"));
  if (texts.profile) {
    LYNX_ASSIGN_OR_RETURN(input.profile, cli::ParseProfileFile(*texts.profile, texts.profile_name));
  }
  if (texts.any_framework) input.target = PlanTarget::kAnyFramework;
  return input;
}

Values StageValues(const Plan& plan, size_t index) {
  const StagePlan& stage = plan.stages[index];
  Values json;
  json["stage"] = index;
  json["layers"] = LayersText(plan, index);
  json["ranks"] = Values::array();
  for (int32_t rank = 0; rank < plan.layout.ranks(); ++rank) {
    if (CoordinatesOf(plan.layout, rank).stage == static_cast<int32_t>(index)) json["ranks"].push_back(rank);
  }
  for (const auto& [name, time] :
       {std::pair("forward_ns", stage.forward), std::pair("backward_ns", stage.backward), std::pair("weight_ns", stage.weight),
        std::pair("optimizer_ns", stage.optimizer), std::pair("recompute_hidden_ns", stage.recompute_hidden),
        std::pair("recompute_exposed_ns", stage.recompute_exposed),
        std::pair("communication_exposed_ns", stage.communication_exposed), std::pair("stall_ns", stage.stall)}) {
    json[name] = time.value;
  }
  for (const auto& [name, bytes] :
       {std::pair("weights_bytes", stage.states.weights), std::pair("gradients_bytes", stage.states.gradients),
        std::pair("optimizer_bytes", stage.states.optimizer), std::pair("arena_bytes", stage.arena),
        std::pair("host_bytes", stage.host)}) {
    json[name] = bytes.value;
  }
  return json;
}

// The rows of a table as dicts. The keys are the titles of the columns.
Values RowValues(const Table& table) {
  Values rows = Values::array();
  for (const std::vector<Cell>& cells : table.rows) {
    Values& row = rows.emplace_back(Values::object());
    for (size_t i = 0; i < cells.size(); ++i) row[table.columns[i].title] = cells[i].text;
  }
  return rows;
}

}  // namespace

PlanRequest Request::Arranged() const {
  PlanRequest arranged = request;
  if (!keep_node_order) arranged.cluster = FastestArrangement(arranged);
  return arranged;
}

std::shared_ptr<const Request> ReadRequest(const RequestTexts& texts) {
  auto made = std::make_shared<Request>();
  made->request = Take(cli::PlanRequestOf(Take(InputOf(texts))));
  made->request.most_program_actions = kMaxProgramActions;
  made->keep_node_order = texts.keep_node_order;
  made->from = texts.profile   ? cli::TimesFrom::kProfile
               : texts.cluster ? cli::TimesFrom::kClusterFile
                               : cli::TimesFrom::kStatedCore;
  if (texts.exact || made->request.spec.recompute == RecomputeMode::kOpt) {
    made->request.exact = Take(SolverInProcess({.binary = texts.solver, .seconds = texts.exact_seconds}));
  }
  return made;
}

std::shared_ptr<const Request> WithoutMemoryLimit(const Request& request) {
  auto unlimited = std::make_shared<Request>(request);
  unlimited->request.spec.resources.activation_memory_per_rank = Bytes(0);
  for (NodeGroup& group : unlimited->request.cluster.groups) group.memory_per_device = Bytes(0);
  return unlimited;
}

std::shared_ptr<MadePlan> PlanOf(const std::shared_ptr<const Request>& request) {
  using Planned = std::pair<std::shared_ptr<const PlanRequest>, absl::StatusOr<PlanResult>>;
  Planned planned = Unlocked([request]() -> Planned {
    auto arranged = std::make_shared<const PlanRequest>(request->Arranged());
    return {arranged, MakePlan(*arranged)};
  });
  PlanResult result = Take(std::move(planned.second));
  if (const auto* infeasible = std::get_if<Infeasible>(&result)) RaiseInfeasible(*infeasible);
  return std::make_shared<MadePlan>(planned.first, std::make_shared<const Plan>(std::get<Plan>(std::move(result))),
                                    request->from);
}

void MadePlan::NeedRequest(const char* what) const {
  if (request_ == nullptr) {
    Raise(absl::FailedPreconditionError(
        absl::StrCat(what,
                     " needs the machine for which the plan was made, which the server does not tell; "
                     "plan the same job with lynx.plan(job, cluster)")));
  }
}

const Plan& MadePlan::Whole() {
  if (plan_->program_microbatches != 0 && request_ != nullptr) {
    auto whole = Unlocked([request = request_] {
      PlanRequest all = *request;
      all.most_program_actions = 0;
      return MakePlanWithoutAdvice(all);
    });
    plan_ = std::make_shared<const Plan>(std::get<Plan>(Take(std::move(whole))));
  }
  return *plan_;
}

std::string MadePlan::Table() {
  if (!table_) {
    std::optional<FasterModel> faster;
    if (request_ != nullptr) {
      faster = Unlocked([request = request_, plan = plan_] { return FindFasterModel(*request, *plan); });
    }
    table_ = request_ != nullptr ? cli::PlanAnswer(*plan_, from_, faster) : PlanTable(*plan_);
  }
  return *table_;
}

std::string MadePlan::Json() { return cli::JsonText(ToProto(Whole())); }

std::string MadePlan::Attributes() {
  const Plan& plan = *plan_;
  const PlanFigures figures = FiguresOf(plan);
  Values json;
  json["step_ns"] = plan.step.value;
  json["tokens_per_step"] = figures.tokens;
  json["tokens_per_second"] = figures.tokens_per_second;
  json["layout"] = LayoutText(plan.layout);
  const ParallelLayout& l = plan.layout;
  for (const auto& [name, degree] :
       {std::pair("ranks", l.ranks()), std::pair("tp", l.tp), std::pair("pp", l.pp), std::pair("dp", l.dp),
        std::pair("cp", l.cp), std::pair("ep", l.ep), std::pair("micro_batch", plan.micro_batch),
        std::pair("microbatches", plan.microbatches), std::pair("samples", plan.samples())}) {
    json[name] = degree;
  }
  json["recompute"] = EnumName(plan.mode);
  json["recompute_hidden_ns"] = figures.hidden.value;
  json["recompute_exposed_ns"] = figures.exposed.value;
  json["stall_ns"] = figures.stall.value;
  json["measured_profile"] = plan.measured_profile;
  json["digest"] = plan.digest;
  json["stages"] = Values::array();
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    json["stages"].push_back(StageValues(plan, i));
    if (request_ == nullptr) continue;
    json["stages"].back()["limit_bytes"] = MemoryLimitOf(*request_, plan, static_cast<int32_t>(i)).value;
  }
  json["policies"] = RowValues(PolicyTable(plan));
  return json.dump(-1, ' ', false, Values::error_handler_t::replace);
}

std::string MadePlan::Html() {
  NeedRequest("html()");
  Whole();
  return Take(Unlocked([request = request_, plan = plan_]() -> absl::StatusOr<std::string> {
    LYNX_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(*request, *plan));
    return HtmlPage(step);
  }));
}

std::string MadePlan::Trace() {
  NeedRequest("trace()");
  Whole();
  return Take(Unlocked([request = request_, plan = plan_]() -> absl::StatusOr<std::string> {
    LYNX_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(*request, *plan));
    LYNX_ASSIGN_OR_RETURN(const ChromeTraceText trace, ChromeTrace(step));
    return trace.json;
  }));
}

std::string MadePlan::Memory() {
  NeedRequest("memory");
  Whole();
  return Take(Unlocked([request = request_, plan = plan_]() -> absl::StatusOr<std::string> {
    LYNX_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(*request, *plan));
    Values stages = Values::array();
    for (size_t i = 0; i < plan->stages.size(); ++i) {
      LYNX_ASSIGN_OR_RETURN(const StageMemory memory, MemoryOf(plan->stages[i], plan->ContextOf(static_cast<int32_t>(i)),
                                                               step.simulation.stages[i].spans));
      Values& stage = stages.emplace_back();
      for (size_t kind = 0; kind < memory.peak.size(); ++kind) {
        stage[MemoryKindName(static_cast<MemoryKind>(kind))] = memory.peak[kind].value;
      }
    }
    return stages.dump();
  }));
}

std::string MadePlan::Actions(int32_t rank) {
  NeedRequest("actions()");
  const Plan& plan = Whole();
  if (rank < 0 || rank >= plan.layout.ranks()) {
    Raise(absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": the plan has ranks 0 to ", plan.layout.ranks() - 1, " (",
                                                  LayoutText(plan.layout), ")")));
  }
  return ProgramText(plan.stages[static_cast<size_t>(CoordinatesOf(plan.layout, rank).stage)].program);
}

}  // namespace lynx::python
