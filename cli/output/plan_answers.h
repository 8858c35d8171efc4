// What plan, compare, explain and whatif answer, as texts: lynxctl prints them, and the Python package returns them. Pure;
// thread-safe.
#ifndef LYNX_CLI_OUTPUT_PLAN_ANSWERS_H_
#define LYNX_CLI_OUTPUT_PLAN_ANSWERS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output/plan_rows.h"
#include "planner/frameworks/framework_plan.h"
#include "planner/plan/plan.h"
#include "planner/search/compare.h"
#include "planner/search/faster_model.h"

namespace lynx::cli {

// Where a plan's times come from: a profile that somebody gave, the cluster file, or figures that are stated for a CPU core.
enum class TimesFrom : uint8_t { kProfile, kClusterFile, kStatedCore };

// The plan as a table, where its times come from unless they were measured, and what would make its steps faster.
std::string PlanAnswer(const Plan& plan, TimesFrom from, const std::optional<FasterModel>& faster);
// A plan for another framework as JSON, indented.
std::string FrameworkAnswerJson(const FrameworkPlan& plan, const HardwareProfile& profile);

// Several plans for comparison. The rows point to the requests and plans from which the answer was made.
struct PlansAnswer {
  std::vector<PlanRow> rows;  // for JSON, CSV and programs
  std::string tables;         // for people
};
PlansAnswer ComparisonAnswer(const PlanRequest& request, const PolicyComparison& comparison);
// `at_skews`: PlanAtSkews of the explained plan at ShownSkews of the request's model.
PlansAnswer ExplanationAnswer(const PlanRequest& request, const Explanation& explanation, const std::vector<Plan>& at_skews);
// The skews at which explain shows the plan: even, as planned, and one and a half times and twice the even share.
std::vector<double> ShownSkews(const MoeSpec& moe);

// The names of the two plans of whatif: without and with the change.
inline constexpr std::array kWhatIfNames = {"now", "what if"};
PlansAnswer WhatIfAnswer(const PlanRequest& now, const PlanResult& now_result, const PlanRequest& changed,
                         const PlanResult& changed_result);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_PLAN_ANSWERS_H_
