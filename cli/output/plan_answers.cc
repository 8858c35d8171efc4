// See plan_answers.h.
#include "cli/output/plan_answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/framework_table.h"
#include "planner/report/plan_table.h"

namespace lynx::cli {
namespace {

constexpr std::array kTimesFrom = {"the profile's rates", "the cluster file's figures", "stated figures for one CPU core"};

const Plan* PlanOf(const std::optional<Plan>& plan) { return plan ? &*plan : nullptr; }

// "optimal on 3 of 4 stages, gap at most 2.1%"; "" if there was nothing to prove.
std::string ProofText(const Plan& plan) {
  int proofs = 0, optimal = 0;
  double gap = 0;
  for (const StagePlan& stage : plan.stages) {
    if (!stage.proof) continue;
    ++proofs;
    if (stage.proof->status == ProofStatus::kOptimal) {
      ++optimal;
      continue;
    }
    gap = std::max(gap, 1 - static_cast<double>(stage.proof->bound.value) / static_cast<double>(stage.proof->exposed.value));
  }
  if (proofs == 0) return "";
  if (optimal == proofs) return "optimal on every stage";
  return absl::StrFormat("optimal on %d of %d stages, gap at most %.1f%%", optimal, proofs, 100 * gap);
}

// The policy as it is planned for the request: the job's modules are those of selective.
std::string PolicyName(const PlanRequest& request, RecomputeMode mode) {
  return mode == RecomputeMode::kSelective ? RecomputeText(mode, request.spec.recompute_options.modules) : EnumName(mode);
}

std::vector<PlanRow> PolicyRows(const PlanRequest& request, const PolicyComparison& comparison) {
  const Plan* const unlimited = PlanOf(comparison.unlimited);
  std::vector<PlanRow> rows;
  if (unlimited != nullptr)
    rows.push_back({"policy", "unlimited memory", &request, unlimited, unlimited, "everything stored, as if it fitted"});
  for (const ComparedPolicy& policy : comparison.policies) {
    PlanRow& row = rows.emplace_back(
        PlanRow{"policy", PolicyName(request, policy.mode), &request, PlanOf(policy.plan), unlimited, policy.error});
    if (policy.plan) {
      row.note = ProofText(*policy.plan);
    } else if (policy.lacking) {
      row.note = absl::StrCat("does not fit: stage ", policy.lacking->stage, " lacks ",
                              FormatBytes(policy.lacking->needed - policy.lacking->limit));
    }
  }
  rows.push_back({"policy", absl::StrCat("chosen (", PolicyName(request, request.spec.recompute), ")"), &request,
                  &comparison.best, unlimited, ProofText(comparison.best)});
  return rows;
}

std::vector<PlanRow> PartitionRows(const PlanRequest& request, const PolicyComparison& comparison) {
  std::vector<PlanRow> rows;
  for (const ComparedPartition& partition : comparison.partitions) {
    rows.push_back({"partition", EnumName(partition.method), &request, PlanOf(partition.plan),
                    PlanOf(comparison.partitions.front().plan), partition.reason});
  }
  return rows;
}

// The first alternative, "off", is the base. No rows if there are no alternatives.
std::vector<PlanRow> WeaveRows(const PlanRequest& request, const std::vector<Alternative>& weaves) {
  std::vector<PlanRow> rows;
  for (const Alternative& weave : weaves) {
    rows.push_back({"weave", weave.change, &request, PlanOf(weave.plan), PlanOf(weaves.front().plan), weave.reason});
  }
  return rows;
}

std::string WeaveTable(const std::vector<PlanRow>& rows) {
  return PlanRowsTable(rows, {"WEAVE", "OF OFF", ""}, LastCell::kNote);
}

std::vector<PlanRow> AlternativeRows(const char* kind, const PlanRequest& request, const Explanation& explanation,
                                     const std::vector<Alternative>& alternatives) {
  std::vector<PlanRow> rows = {{"chosen", "chosen", &request, &explanation.plan, &explanation.plan, ""}};
  for (const Alternative& other : alternatives)
    rows.push_back({kind, other.change, &request, PlanOf(other.plan), &explanation.plan, other.reason});
  return rows;
}

// Says how far the plan can be from the best plan of its space.
std::string BoundText(const Explanation& explanation) {
  const int64_t permille =
      (explanation.plan.step - explanation.bound).value * 1000 / std::max<int64_t>(1, explanation.bound.value);
  return absl::StrCat("No plan of this space takes less than ", FormatDuration(explanation.bound),
                      " (a bound): this plan takes at most ", permille / 10, ".", permille % 10, "% more than the best.\n");
}

// `plans`: the result of PlanAtSkews. The first plan, of an even load, is the base.
std::vector<PlanRow> SkewRows(const PlanRequest& request, const std::vector<Plan>& plans) {
  std::vector<PlanRow> rows;
  for (const Plan& plan : plans) {
    const double skew = plan.model.moe.skew;
    rows.push_back({"skew", absl::StrFormat("%.4g", skew), &request, &plan, &plans.front(),
                    skew == request.spec.model.moe.skew ? "as planned" : ""});
    // Without a capacity, tensors grow with the skew. The plan's arena is known only for the skew for which it was planned.
    rows.back().peak_known = plan.model.moe.capacity > 0 || skew == request.spec.model.moe.skew;
  }
  return rows;
}

}  // namespace

std::string PlanAnswer(const Plan& plan, TimesFrom from, const std::optional<FasterModel>& faster) {
  std::string text = PlanTable(plan);
  if (!plan.measured_profile) {
    absl::StrAppend(&text, "times come from ", kTimesFrom.at(static_cast<size_t>(from)),
                    "; on a cluster the agents measure them\n");
  }
  return absl::StrCat(text, FasterModelText(faster, plan));
}

std::string FrameworkAnswerJson(const FrameworkPlan& plan, const HardwareProfile& profile) {
  return nlohmann::ordered_json::parse(FrameworkPlanJson(plan, profile)).dump(1) + "\n";
}

std::vector<double> ShownSkews(const MoeSpec& moe) {
  std::vector<double> skews = {1, 1.5, 2, moe.skew};
  std::erase_if(skews, [&](double skew) { return skew > moe.experts; });
  std::sort(skews.begin(), skews.end());
  skews.erase(std::unique(skews.begin(), skews.end()), skews.end());
  return skews;
}

PlansAnswer ComparisonAnswer(const PlanRequest& request, const PolicyComparison& comparison) {
  std::vector<PlanRow> rows = PolicyRows(request, comparison);
  const std::vector<PlanRow> partitions = PartitionRows(request, comparison);
  std::string text = absl::StrCat(LayoutText(comparison.best.layout), ", micro-batch ", comparison.best.micro_batch,
                                  ": predicted, every policy in this layout\n\n",
                                  PlanRowsTable(rows, {"POLICY", "OF UNLIMITED", ""}, LastCell::kNote));
  if (!partitions.empty()) {
    absl::StrAppend(&text, "\nrecompute ", EnumName(request.spec.recompute), ", layers spread by\n",
                    PlanRowsTable(partitions, {"PARTITION", "OF EXACT", "LAYERS"}, LastCell::kLayers));
  }
  const std::vector<PlanRow> weaves = WeaveRows(request, comparison.weaves);
  if (!weaves.empty()) {
    absl::StrAppend(&text, "\nrecompute ", EnumName(request.spec.recompute), ", passes of microbatches side by side\n",
                    WeaveTable(weaves));
  }
  rows.insert(rows.end(), partitions.begin(), partitions.end());
  rows.insert(rows.end(), weaves.begin(), weaves.end());
  return {std::move(rows), std::move(text)};
}

PlansAnswer ExplanationAnswer(const PlanRequest& request, const Explanation& explanation, const std::vector<Plan>& at_skews) {
  const PlanTitles titles = {"", "THROUGHPUT", "LAYOUT"};
  std::vector<PlanRow> rows = AlternativeRows("layout", request, explanation, explanation.rejected);
  const std::vector<PlanRow> more = AlternativeRows("more", request, explanation, explanation.sensitivities);
  std::string text = explanation.rejected.empty() ? "NO OTHER LAYOUT: parallel and resources of the job leave no other "
                                                    "tensor- and pipeline-parallel sizes on these devices\n"
                                                  : absl::StrCat("REJECTED LAYOUTS, the fastest plan of each\n",
                                                                 PlanRowsTable(rows, titles, LastCell::kLayout));
  const std::vector<PlanRow> weaves = WeaveRows(request, explanation.weaves);
  if (!weaves.empty()) {
    absl::StrAppend(&text, "\nPASSES SIDE BY SIDE (parallel.weave) in the chosen layout\n", WeaveTable(weaves));
  }
  const std::vector<PlanRow> skews = SkewRows(request, at_skews);
  if (!skews.empty()) {
    absl::StrAppend(&text, "\nWHAT AN UNEVEN LOAD OF EXPERTS COSTS (model.moe.skew), with the chosen plan\n",
                    PlanRowsTable(skews, {"SKEW", "OF EVEN", ""}, LastCell::kNote));
  }
  absl::StrAppend(&text, "\n", BoundText(explanation));
  absl::StrAppend(&text, "\nWHAT MORE WOULD BRING\n", PlanRowsTable(more, titles, LastCell::kLayout));
  rows.insert(rows.end(), weaves.begin(), weaves.end());
  rows.insert(rows.end(), skews.begin(), skews.end());
  rows.insert(rows.end(), more.begin() + 1, more.end());  // the chosen plan is already in the list
  return {std::move(rows), std::move(text)};
}

PlansAnswer WhatIfAnswer(const PlanRequest& now, const PlanResult& now_result, const PlanRequest& changed,
                         const PlanResult& changed_result) {
  std::vector<PlanRow> rows = {{.kind = "plan", .name = kWhatIfNames[0], .request = &now},
                               {.kind = "plan", .name = kWhatIfNames[1], .request = &changed}};
  const Plan* first = nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlanResult& result = i == 0 ? now_result : changed_result;
    if (const auto* lacking = std::get_if<Infeasible>(&result)) {
      rows[i].note = absl::StrCat("does not fit: ", lacking->reason, "; the smallest change that fits: ", lacking->suggestion);
      continue;
    }
    rows[i].plan = &std::get<Plan>(result);
    if (first == nullptr) first = rows[i].plan;
    rows[i].base = first;
  }
  std::string tables = PlanRowsTable(rows, {"", "THROUGHPUT", "LAYOUT"}, LastCell::kLayout);
  return {std::move(rows), std::move(tables)};
}

}  // namespace lynx::cli
