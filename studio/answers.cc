#include "studio/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"
#include "planner/export/export.h"
#include "planner/problem/layout.h"
#include "planner/problem/model_families.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/html_page.h"
#include "planner/report/plan_table.h"
#include "planner/report/timeline.h"
#include "planner/search/arrangement.h"
#include "planner/search/make_plan.h"
#include "studio/strict_json.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

constexpr char kRanksField[] = "resources.ranks";
constexpr char kJobFileName[] = "job.yaml", kClusterFileName[] = "cluster.yaml";

// An answer, and what the service keeps of it.
struct Answer {
  Json json;
  Json kept = Json::object();
  std::string data =
      "";  // JSON that becomes the key "data" of the answer; it is long, so it is not read again; "" = no such key
};

// Text that is not UTF-8, which only a file of the computer's user can bring in, is shown with replacement characters.
std::string Dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string TextOf(const Answer& answer) {
  std::string text = Dumped(answer.json);
  if (!answer.data.empty()) {
    text.pop_back();
    absl::StrAppend(&text, ",\"data\":", answer.data, "}");
  }
  return absl::StrCat(Dumped(answer.kept), "\n", text, "\n");
}

Answer ErrorAnswer(const absl::Status& status, const StudioState& state) {
  return {Json{{"error", ErrorJson(ErrorOf(status, state))}}};
}

Json InfeasibleJson(const Infeasible& infeasible, const ClusterTopology& cluster, const StudioState& state) {
  return {{"infeasible",
           {{"reason", infeasible.reason},
            {"suggestion", infeasible.suggestion},
            {"set", ChangeOfState(infeasible.suggestion, cluster, state)}}}};
}

// Completes the request of a state, as `lynxctl plan` completes one that it reads from files.
absl::StatusOr<PlanRequest> FinishedRequest(StudioRequest made, const AnswerMeans& means) {
  PlanRequest request = std::move(made.request);
  if (request.spec.recompute == RecomputeMode::kOpt) request.exact = means.exact;
  request.cluster = FastestArrangement(request);
  return request;
}

Json PlanOnlyJson(const ModelSpec& model) {
  Json names = Json::array();
  for (const PlanOnlyFeature feature : FeaturesOf(model.plan_only)) names.push_back(EnumName(feature));
  return names;
}

Json SummaryJson(const PlanRequest& request, const Plan& plan, Nanos planning) {
  const PlanFigures figures = FiguresOf(plan);
  const PeakMemory memory = PeakOf(request, plan);
  return {{"stepNs", plan.step.value},
          {"tokensPerSecond", figures.tokens_per_second},
          {"layout", LayoutText(plan.layout)},
          {"ranks", plan.layout.ranks()},
          {"devices", request.cluster.devices()},
          {"microBatch", plan.micro_batch},
          {"microbatches", plan.microbatches},
          {"seq", plan.model.seq},
          {"peakBytes", memory.peak.value},
          {"limitBytes", memory.limit.value},
          {"hiddenNs", figures.hidden.value},
          {"exposedNs", figures.exposed.value},
          {"stallNs", figures.stall.value},
          {"recompute", RecomputeText(plan.mode, request.spec.recompute_options.modules)},
          {"planOnly", PlanOnlyJson(plan.model)},
          {"planningNs", planning.value}};
}

// A plan that was asked for.
struct Planned {
  PlanRequest request;
  PlanResult result;
  bool kept = false;  // in the layout of the last answer
};

// Plans in the kept layout; nullopt if there is none, or if it does not fit the state any more.
std::optional<Planned> PlanInKeptLayout(const StudioState& state, const std::vector<StudioMachine>& machines, const Json& kept,
                                        const AnswerMeans& means) {
  std::vector<JobValue> values;
  for (const auto& [path, value] : kept.items()) values.emplace_back(path, value.get<std::string>());
  if (values.empty()) return std::nullopt;
  absl::StatusOr<StudioRequest> made = RequestOf(state, machines, values);
  if (!made.ok()) return std::nullopt;
  absl::StatusOr<PlanRequest> request = FinishedRequest(*std::move(made), means);
  if (!request.ok()) return std::nullopt;
  request->most_program_actions = kMaxDrawnActions;
  absl::StatusOr<PlanResult> result = MakePlanWithoutAdvice(*request);
  if (!result.ok() || std::holds_alternative<Infeasible>(*result)) return std::nullopt;
  return Planned{*std::move(request), *std::move(result), true};
}

absl::StatusOr<Planned> PlanAnyLayout(const StudioState& state, const std::vector<StudioMachine>& machines,
                                      const AnswerMeans& means) {
  LYNX_ASSIGN_OR_RETURN(StudioRequest made, RequestOf(state, machines));
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, FinishedRequest(std::move(made), means));
  request.most_program_actions = kMaxDrawnActions;
  LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlanWithoutAdvice(request));
  return Planned{std::move(request), std::move(result)};
}

absl::StatusOr<Answer> PlanAnswer(const StudioState& state, const std::vector<StudioMachine>& machines, const Json& question,
                                  const AnswerMeans& means) {
  const Nanos begin = means.clock->Monotonic();
  std::optional<Planned> planned;
  if (question["request"].value("layout", "any") == "same" && question.contains("kept")) {
    planned = PlanInKeptLayout(state, machines, question["kept"], means);
  }
  if (!planned) {
    LYNX_ASSIGN_OR_RETURN(planned, PlanAnyLayout(state, machines, means));
  }
  const Nanos planning = means.clock->Monotonic() - begin;
  Answer answer;
  if (const auto* infeasible = std::get_if<Infeasible>(&planned->result)) {
    answer.json = InfeasibleJson(*infeasible, planned->request.cluster, state);
  } else {
    const Plan& plan = std::get<Plan>(planned->result);
    answer.json["summary"] = SummaryJson(planned->request, plan, planning);
    answer.json["summary"]["layoutKept"] = planned->kept;
    answer.json["parts"] = Json::object();
    answer.data = "null";
    if (plan.program_microbatches == 0) {
      LYNX_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(planned->request, plan));
      LYNX_ASSIGN_OR_RETURN(PlanParts view, PlanPageParts(step, {}));
      for (const PagePart& part : view.parts) answer.json["parts"][part.id] = part.html;
      answer.data = std::move(view.data);
    }
    for (const auto& [path, value] : LayoutValues(plan, planned->request.spec)) answer.kept[path] = value;
  }
  answer.json["state"] = StateJson(Normalized(state, machines));
  return answer;
}

absl::StatusOr<Answer> MoreAnswer(const StudioState& state, const std::vector<StudioMachine>& machines,
                                  const AnswerMeans& means) {
  LYNX_ASSIGN_OR_RETURN(StudioRequest made, RequestOf(state, machines));
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, FinishedRequest(std::move(made), means));
  LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlanWithoutAdvice(request));
  if (std::holds_alternative<Infeasible>(result)) {
    LYNX_ASSIGN_OR_RETURN(result, MakePlan(request));  // the same, with the smallest change that fits
  }
  if (const auto* lacking = std::get_if<Infeasible>(&result)) return Answer{InfeasibleJson(*lacking, request.cluster, state)};
  LYNX_ASSIGN_OR_RETURN(Json more, MoreJson(request, means));
  return Answer{std::move(more)};
}

// Returns a sentence for each value of the state that a job file cannot express.
std::vector<std::string> NotInJobFile(const StudioState& state) {
  std::vector<std::string> sentences;
  if (state.nodes > 0) {
    sentences.push_back(absl::StrCat("the number of nodes is not in the job file: lynxctl plan --nodes ", state.nodes));
  }
  if (state.memory.value > 0) {
    sentences.push_back(absl::StrCat("the job may use ", FormatBytes(state.memory),
                                     " of each device here: change memory and reservedMemory in the cluster file"));
  }
  if (state.link_scale != 1) {
    sentences.push_back(absl::StrCat("links between nodes have ", state.link_scale,
                                     " times the rate here: change links.network in the cluster file"));
  }
  return sentences;
}

Json FilesJson(const std::vector<ExportedFile>& files, const std::vector<std::string>& missing) {
  Json json{{"files", Json::array()}, {"notExpressed", missing}};
  for (const ExportedFile& file : files) json["files"].push_back({{"name", file.name}, {"text", file.text}});
  return json;
}

absl::StatusOr<Answer> ExportAnswer(const StudioState& state, const std::vector<StudioMachine>& machines,
                                    const std::string& format, const AnswerMeans& means) {
  const StudioState normal = Normalized(state, machines);
  LYNX_ASSIGN_OR_RETURN(StudioRequest made, RequestOf(normal, machines));
  if (format == "job") {
    std::vector<ExportedFile> files = {{kJobFileName, made.job_text}, {kClusterFileName, made.cluster_text}};
    if (!state.config.empty()) files.push_back({state.config_name, state.config});
    return Answer{FilesJson(files, NotInJobFile(state))};
  }
  ExportFormat known;
  if (!ParseEnum(format, known)) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: expected job, megatron, deepspeed or torchtitan, found '", format, "'"));
  }
  made.request.target = PlanTarget::kAnyFramework;
  LYNX_ASSIGN_OR_RETURN(const PlanRequest request, FinishedRequest(std::move(made), means));
  LYNX_ASSIGN_OR_RETURN(const PlanResult result, MakePlanFor(known, request));
  if (const auto* infeasible = std::get_if<Infeasible>(&result))
    return Answer{InfeasibleJson(*infeasible, request.cluster, state)};
  LYNX_ASSIGN_OR_RETURN(const ExportedPlan exported, ExportPlan(NewestTarget(known), request, std::get<Plan>(result)));
  return Answer{FilesJson(exported.files, exported.missing)};
}

absl::StatusOr<std::vector<StudioMachine>> MachinesOf(const Json& question) {
  std::vector<StudioMachine> machines;
  for (const Json& machine : question.value("machines", Json::array())) {
    machines.push_back({machine.at("name"), machine.at("title"), machine.at("text")});
  }
  const std::vector<StudioMachine> ready = ReadyMachines();
  machines.insert(machines.end(), ready.begin(), ready.end());
  return machines;
}

absl::StatusOr<Answer> AnswerTo(const Json& question, StudioState& state, const AnswerMeans& means) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<StudioMachine> machines, MachinesOf(question));
  const std::string ask = question.value("ask", "");
  if (ask == "choices") {
    LYNX_ASSIGN_OR_RETURN(Json choices, ChoicesJson(question, machines));
    return Answer{std::move(choices)};
  }
  const Json request = question.value("request", Json::object());
  if (!request.contains("state")) return absl::InvalidArgumentError("state: the question has none");
  LYNX_ASSIGN_OR_RETURN(state, ParseState(request["state"]));
  if (ask == "plan") return PlanAnswer(state, machines, question, means);
  if (ask == "more") return MoreAnswer(state, machines, means);
  return ExportAnswer(state, machines, request.value("format", ""), means);
}

}  // namespace

Json ErrorJson(const StudioError& error) {
  return {{"text", error.text}, {"field", error.field}, {"file", error.file}, {"line", error.line}, {"column", error.column}};
}

PeakMemory PeakOf(const PlanRequest& request, const Plan& plan) {
  PeakMemory fullest;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const Bytes peak = plan.stages[i].arena + plan.stages[i].states.total();
    if (i == 0 || peak > fullest.peak) fullest = {peak, MemoryLimitOf(request, plan, static_cast<int32_t>(i))};
  }
  return fullest;
}

Json ChangeOfState(const std::string& suggestion, const ClusterTopology& cluster, const StudioState& state) {
  Json set = Json::object();
  absl::string_view text = suggestion;
  if (absl::ConsumePrefix(&text, "devices with at least ")) {
    absl::ConsumeSuffix(&text, " each");
    const absl::StatusOr<Bytes> memory = cli::ParseByteSize(std::string(text));
    if (memory.ok()) set["memoryBytes"] = memory->value;
    return set;
  }
  const size_t bracket = text.rfind(" (");
  if (bracket != absl::string_view::npos) {  // "... (2 more nodes)"
    int32_t more = 0;
    const std::string count(text.substr(bracket + 2, text.find(' ', bracket + 2) - bracket - 2));
    if (!absl::SimpleAtoi(count, &more) || cluster.groups.size() > 1) return set;
    set["nodes"] = cluster.groups[0].nodes + more;
    text = text.substr(0, bracket);
  }
  for (const absl::string_view part : absl::StrSplit(text, ", ")) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits(": ", 1));
    if (pair.size() != 2) return Json::object();  // such as "a smaller model"
    set["job"][pair[0]] = ValueJson({pair[0], pair[1] == "\"\"" ? "" : pair[1]});
  }
  // A state that leaves the ranks open has a rank on every device.
  const bool open = std::none_of(state.job.begin(), state.job.end(), [](const JobValue& v) { return v.first == kRanksField; });
  if (open && set.contains("nodes") &&
      set["job"].value(kRanksField, 0) == set["nodes"].get<int32_t>() * cluster.groups[0].devices_per_node) {
    set["job"].erase(kRanksField);
    if (set["job"].empty()) set.erase("job");
  }
  return set;
}

std::string AnswerQuestion(const std::string& question, const AnswerMeans& means) {
  StudioState state;
  absl::StatusOr<Answer> answer;
  // The studio's service wrote the question. If the question is not as this function expects, one of the two programs has a
  // defect.
  const Json parsed = Json::parse(question, nullptr, false);
  answer = parsed.is_object() ? AnswerTo(parsed, state, means) : absl::InvalidArgumentError("the question is no JSON object");
  if (!answer.ok()) answer = ErrorAnswer(answer.status(), state);
  return TextOf(*answer);
}

}  // namespace lynx
