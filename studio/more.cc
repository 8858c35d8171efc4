// The answer to "more": policies, what memory buys, and what stands in the way of a shorter step. See answers.h.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "planner/problem/layout.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "studio/answers.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFrontierLimits = 7;   // memory limits of the frontier, in addition to the machine's own
constexpr int64_t kMinGainPermille = 5;  // a change that makes the step shorter by less is not named
constexpr size_t kMaxNamedGains = 2;

Json PlanJson(const std::string& name, const PlanRequest& request, const Plan& plan, std::string note) {
  return {{"name", name}, {"stepNs", plan.step.value}, {"peakBytes", PeakOf(request, plan).peak.value},
          {"fits", true}, {"chosen", false},           {"note", std::move(note)}};
}

Json PolicyJson(const PlanRequest& request, const ComparedPolicy& policy) {
  if (policy.plan) return PlanJson(EnumName(policy.mode), request, *policy.plan, "");
  const std::string note = policy.lacking ? absl::StrCat("does not fit: stage ", policy.lacking->stage, " lacks ",
                                                         FormatBytes(policy.lacking->needed - policy.lacking->limit))
                                          : policy.error;
  return {{"name", EnumName(policy.mode)}, {"stepNs", 0}, {"peakBytes", 0}, {"fits", false}, {"chosen", false}, {"note", note}};
}

Json PoliciesOf(const PlanRequest& request, const PolicyComparison& comparison) {
  Json list = Json::array();
  for (const ComparedPolicy& policy : comparison.policies) {
    if (policy.mode != request.spec.recompute) list.push_back(PolicyJson(request, policy));  // the chosen one comes last
  }
  if (comparison.unlimited) {
    list.push_back(PlanJson("unlimited memory", request, *comparison.unlimited, "everything stored, as if it fitted"));
    const PeakMemory memory = PeakOf(request, comparison.best);
    list.back()["fits"] = memory.limit.value == 0 || PeakOf(request, *comparison.unlimited).peak <= memory.limit;
  }
  const std::string chosen = RecomputeText(request.spec.recompute, request.spec.recompute_options.modules);
  list.push_back(PlanJson(chosen, request, comparison.best, LayoutText(comparison.best.layout)));
  list.back()["chosen"] = true;
  return list;
}

// Memory limits from the least with which some policy fits to what everything stored takes, and the machine's own limit.
std::vector<Bytes> FrontierLimits(const PlanRequest& request, const PolicyComparison& comparison, Bytes limit) {
  Bytes least = PeakOf(request, comparison.best).peak, most = least;
  for (const ComparedPolicy& policy : comparison.policies) {
    if (policy.plan) least = std::min(least, PeakOf(request, *policy.plan).peak);
  }
  if (comparison.unlimited) most = std::max(most, PeakOf(request, *comparison.unlimited).peak);
  std::vector<Bytes> limits;
  for (int64_t i = 0; i < kFrontierLimits; ++i) limits.push_back(least + (most - least) * i / (kFrontierLimits - 1));
  if (limit.value > 0) limits.push_back(limit);
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  return limits;
}

// One plan for each limit, in any layout that the job allows, without those that need more memory and no less time than
// another. Empty if the groups of nodes differ, because one limit is not that of all their devices.
Json FrontierOf(const PlanRequest& request, const std::vector<Bytes>& limits, const AnswerMeans& means) {
  if (request.cluster.groups.size() > 1) return Json::array();
  std::vector<std::optional<Plan>> plans(limits.size());
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < limits.size(); ++i) {
    tasks.push_back([&, i] {
      PlanRequest with = request;
      for (NodeGroup& group : with.cluster.groups) group.memory_per_device = limits[i];
      absl::StatusOr<PlanResult> made = MakePlanWithoutAdvice(with);
      if (made.ok() && std::holds_alternative<Plan>(*made)) plans[i] = std::get<Plan>(*std::move(made));
    });
  }
  if (means.run && !request.exact) {
    means.run(tasks);
  } else {
    for (const auto& task : tasks) task();
  }
  std::vector<std::pair<Bytes, const Plan*>> points;
  for (const std::optional<Plan>& plan : plans) {
    if (plan) points.emplace_back(PeakOf(request, *plan).peak, &*plan);
  }
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->step) < std::pair(b.first, b.second->step);
  });
  Json list = Json::array();
  std::optional<Nanos> shortest;
  for (const auto& [peak, plan] : points) {
    if (shortest && plan->step >= *shortest) continue;
    shortest = plan->step;
    list.push_back({{"stepNs", plan->step.value},
                    {"peakBytes", peak.value},
                    {"note", absl::StrCat(LayoutText(plan->layout), ", recompute ",
                                          RecomputeText(plan->mode, request.spec.recompute_options.modules))}});
  }
  return list;
}

// What takes time beside the passes themselves, in the words of the sentence.
struct Loss {
  const char* words;
  Nanos time;
};

}  // namespace

std::string WhyNotFaster(const Explanation& explanation) {
  const Plan& plan = explanation.plan;
  const int64_t whole = plan.step.value * static_cast<int64_t>(plan.stages.size());
  Nanos stall, communication, recomputation, waiting;
  for (const StagePlan& stage : plan.stages) {
    stall += stage.stall;
    communication += stage.communication_exposed;
    recomputation += stage.recompute_exposed;
    waiting += stage.core_wait;
  }
  const std::array losses = {Loss{"stages wait for each other", stall}, Loss{"transfers are not hidden", communication},
                             Loss{"recomputation is not hidden", recomputation}, Loss{"ranks wait for shared cores", waiting}};
  const Loss& largest =
      *std::max_element(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.time < b.time; });
  std::string text = largest.time.value * 1000 < whole * kMinGainPermille
                         ? "The step is nearly all computation"
                         : absl::StrCat("For ", PercentText(largest.time.value, whole), " of the step, ", largest.words);
  std::vector<std::pair<Nanos, std::string>> gains;
  for (const Alternative& change : explanation.sensitivities) {
    if (!change.plan) continue;
    const Nanos gain = plan.step - change.plan->step;
    if (gain.value * 1000 < plan.step.value * kMinGainPermille) continue;
    gains.emplace_back(gain, absl::StrCat(change.change, " would take ", PercentText(gain.value, plan.step.value), " off it"));
  }
  std::sort(gains.begin(), gains.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (gains.size() > kMaxNamedGains) gains.resize(kMaxNamedGains);
  for (const auto& [gain, words] : gains) absl::StrAppend(&text, "; ", words);
  absl::StrAppend(&text, explanation.bound < plan.step
                             ? absl::StrCat("; no plan on these devices takes less than ", FormatDuration(explanation.bound))
                             : "; no plan on these devices takes less time");
  return text + ".";
}

absl::StatusOr<Json> MoreJson(const PlanRequest& request, const AnswerMeans& means) {
  const CompareOptions options{.run = means.run};
  LYNX_ASSIGN_OR_RETURN(const PolicyComparison comparison, ComparePolicies(request, options));
  const Bytes limit = PeakOf(request, comparison.best).limit;
  Json json;
  json["policies"] = PoliciesOf(request, comparison);
  // One limit says nothing of a machine whose groups of nodes have different memory.
  json["frontier"] = request.cluster.groups.size() > 1 ? Json::array()
                                                       : FrontierOf(request, FrontierLimits(request, comparison, limit), means);
  json["limitBytes"] = limit.value;
  json["why"] = WhyNotFaster(ExplainLimits(request, comparison.best, options));
  return json;
}

}  // namespace lynx
