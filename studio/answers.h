// Answers to the questions of the studio's page. A question and its answer are JSON texts; studio/service.h describes the
// addresses at which the page asks. The keys of the answers that are no errors:
//
//     choices  "version", "models", "machines", "policies", "fields" (of the job file), "formats", "state" (to begin with)
//     plan     "summary" (figures; times in ns), "parts" and "data" (PlanPageParts in planner/report/html_page.h; empty and
//     null
//              for a step that is too large to draw), "state" (without fields that have their defaults)
//     more     "policies", "frontier" (each with "stepNs", "peakBytes", "note"), "limitBytes", "why" (one sentence)
//     export   "files" (each with "name", "text"), "notExpressed" (sentences)
//
// If nothing fits, the answer has "infeasible" in their place: "reason", and for "more" also "suggestion" and what it sets in
// the state, "set". Each function depends only on its arguments and, for AnswerQuestion with `ask` "choices", on the
// config.json that a job file names; thread-safe.
#ifndef LYNX_STUDIO_ANSWERS_H_
#define LYNX_STUDIO_ANSWERS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/clock.h"
#include "planner/plan/plan.h"
#include "planner/search/compare.h"
#include "studio/state.h"

namespace lynx {

// What the answers need from the program that gives them.
struct AnswerMeans {
  RunTasks run;        // runs independent plans at the same time; may be empty
  StageSolver exact;   // for jobs with recompute opt; may be empty: such jobs are refused with a reason
  const Clock* clock;  // measures how long planning takes
};

// A plan's programs with more actions than this are not drawn: the answer has only figures.
inline constexpr int64_t kMaxDrawnActions = 2'000'000;

// The question: {"ask": "choices"|"plan"|"more"|"export", "machines": [{"name", "title", "text"}], "request": {...}, "kept":
// {...}}. `machines` come before those that are compiled in. `request` is what the page sent. `kept`: the first line of an
// earlier answer to "plan". For "choices", `job` and `cluster` may be {"text", "name", "folder"}: the files to begin with.
//
// Returns a line that a service keeps for the next question ("{}" if nothing), and after it the answer. An error is an answer:
// {"error": {"text", "field", "file", "line", "column"}}.
std::string AnswerQuestion(const std::string& question, const AnswerMeans& means);

// ---- Parts, also used by tests ----

nlohmann::json ErrorJson(const StudioError& error);

// Models, machines, policies, fields of the job file, and the state to begin with. InvalidArgument: a file of the question is
// wrong; the text names the file.
absl::StatusOr<nlohmann::json> ChoicesJson(const nlohmann::json& question, const std::vector<StudioMachine>& machines);

// The policies in the plan's layout, plans at several memory limits, and one sentence that says what stands in the way of a
// shorter step. Returns the errors of MakePlan; FailedPrecondition if nothing fits.
absl::StatusOr<nlohmann::json> MoreJson(const PlanRequest& request, const AnswerMeans& means);
std::string WhyNotFaster(const Explanation& explanation);

// The memory of the fullest stage's devices, with the states, and its limit; a limit of 0 is unknown.
struct PeakMemory {
  Bytes peak, limit;
};
PeakMemory PeakOf(const PlanRequest& request, const Plan& plan);

// What a change that makes a job fit ("train.microBatch: 2, parallel.tp: 4", "resources.ranks: 16 (1 more node)", "devices with
// at least 96GiB each") sets in a state: {"job": {...}, "nodes": N, "memoryBytes": N}, only the keys that change. Empty if the
// text names no values.
nlohmann::json ChangeOfState(const std::string& suggestion, const ClusterTopology& cluster, const StudioState& state);

}  // namespace lynx

#endif  // LYNX_STUDIO_ANSWERS_H_
