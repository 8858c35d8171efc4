// compare, explain and whatif: tables of plans beside each other. See commands.h.
#include <algorithm>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/plan_request.h"
#include "cli/render.h"
#include "common/status.h"
#include "planner/compare.h"
#include "planner/flops.h"

namespace lynx {
namespace {

using Rows = std::vector<std::vector<std::string>>;

int64_t TokensOf(const Plan& plan) {
  return int64_t{plan.micro_batch} * plan.microbatches * plan.layout.dp * plan.model.seq;
}

std::string RateText(const Plan& plan) {
  return Count(static_cast<double>(TokensOf(plan)) * 1e9 /
               static_cast<double>(std::max<int64_t>(1, plan.step.value)));
}

std::string MfuText(const PlanRequest& request, const Plan& plan) {
  const HardwareProfile profile = SlowestProfile(request.cluster);
  const bool half = plan.model.dtype == DataType::kBfloat16 && profile.bfloat16_flops_per_second > 0;
  const int64_t peak = half ? profile.bfloat16_flops_per_second : profile.flops_per_second;
  const double flops = StepFlops(plan.model, TokensOf(plan) / plan.model.seq, FlopCount::kModel);
  const double seconds = static_cast<double>(plan.step.value) / 1e9;
  return absl::StrFormat("%.1f%%", 100 * FlopsUtilization(flops, seconds, plan.layout.ranks(), peak));
}

std::string PeakText(const Plan& plan) {
  Bytes peak;
  for (const StagePlan& stage : plan.stages) peak = std::max(peak, stage.arena);
  return FormatBytes(peak);
}

Nanos Hidden(const Plan& plan) {
  Nanos sum;
  for (const StagePlan& stage : plan.stages) sum += stage.recompute_hidden;
  return sum;
}

Nanos Exposed(const Plan& plan) {
  Nanos sum;
  for (const StagePlan& stage : plan.stages) sum += stage.recompute_exposed;
  return sum;
}

// "1.12x" of the throughput of `base`.
std::string RatioText(const Plan& plan, const Plan& base) {
  const double rate =
      static_cast<double>(TokensOf(plan)) / static_cast<double>(std::max<int64_t>(1, plan.step.value));
  const double of = static_cast<double>(TokensOf(base)) / static_cast<double>(std::max<int64_t>(1, base.step.value));
  return absl::StrFormat("%.3fx", rate / of);
}

std::vector<std::string> PlanCells(const PlanRequest& request, const Plan& plan) {
  return {FormatDuration(plan.step),     RateText(plan), MfuText(request, plan), FormatDuration(Hidden(plan)),
          FormatDuration(Exposed(plan)), PeakText(plan)};
}

// "optimal on 3 of 4 stages, gap at most 2.1%"; "" where nothing was to be proven.
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
    gap = std::max(
        gap, 1 - static_cast<double>(stage.proof->bound.value) / static_cast<double>(stage.proof->exposed.value));
  }
  if (proofs == 0) return "";
  if (optimal == proofs) return "optimal on every stage";
  return absl::StrFormat("optimal on %d of %d stages, gap at most %.1f%%", optimal, proofs, 100 * gap);
}

void PrintComparison(const PlanRequest& request, const PolicyComparison& comparison) {
  std::printf("%s, micro-batch %d: predicted, every policy in this layout\n\n",
              LayoutText(comparison.best.layout).c_str(), comparison.best.micro_batch);
  Rows rows{{"POLICY", "STEP", "TOKENS/S", "MFU", "HIDDEN", "EXPOSED", "PEAK", "OF UNLIMITED", ""}};
  const auto add = [&](const std::string& name, const Plan& plan, const std::string& note) {
    std::vector<std::string> row{name};
    const std::vector<std::string> cells = PlanCells(request, plan);
    row.insert(row.end(), cells.begin(), cells.end());
    row.push_back(comparison.unlimited ? RatioText(plan, *comparison.unlimited) : "-");
    row.push_back(note);
    rows.push_back(row);
  };
  if (comparison.unlimited) add("unlimited memory", *comparison.unlimited, "everything stored, as if it fitted");
  for (const ComparedPolicy& row : comparison.policies) {
    const std::string name = RecomputeModeName(row.mode);
    if (row.plan) {
      add(name, *row.plan, ProofText(*row.plan));
    } else {
      const std::string why = row.lacking ? absl::StrCat("does not fit: stage ", row.lacking->stage, " lacks ",
                                                         FormatBytes(row.lacking->needed - row.lacking->limit))
                                          : row.error;
      rows.push_back({name, "-", "-", "-", "-", "-", "-", "-", why});
    }
  }
  add(absl::StrCat("chosen (", RecomputeModeName(request.spec.recompute), ")"), comparison.best,
      ProofText(comparison.best));
  std::fputs(TableText(rows).c_str(), stdout);
}

// "5 6 6 5": layers of each stage.
std::string LayerCounts(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    int32_t layers = 0;
    for (const SlicePlan& slice : stage.slices) layers += slice.layers();
    absl::StrAppend(&text, text.empty() ? "" : " ", layers);
  }
  return text;
}

void PrintPartitions(const PlanRequest& request, const PolicyComparison& comparison) {
  if (comparison.partitions.empty()) return;
  Rows rows{{"PARTITION", "STEP", "TOKENS/S", "MFU", "HIDDEN", "EXPOSED", "PEAK", "OF EXACT", "LAYERS"}};
  const std::optional<Plan>& exact = comparison.partitions.front().plan;
  for (const ComparedPartition& row : comparison.partitions) {
    std::vector<std::string> cells{PartitionMethodName(row.method)};
    if (!row.plan) {
      rows.push_back({cells[0], "-", "-", "-", "-", "-", "-", "-", row.reason});
      continue;
    }
    const std::vector<std::string> figures = PlanCells(request, *row.plan);
    cells.insert(cells.end(), figures.begin(), figures.end());
    cells.push_back(exact ? RatioText(*row.plan, *exact) : "-");
    cells.push_back(LayerCounts(*row.plan));
    rows.push_back(cells);
  }
  std::printf("\nrecompute %s, layers spread by\n%s", RecomputeModeName(request.spec.recompute), TableText(rows).c_str());
}

void AddAlternatives(const PlanRequest& request, const std::vector<Alternative>& alternatives, const Plan& base,
                     Rows& rows) {
  for (const Alternative& other : alternatives) {
    if (!other.plan) {
      rows.push_back({other.change, "-", "-", "-", "-", "-", "-", "-", other.reason});
      continue;
    }
    std::vector<std::string> row{other.change};
    const std::vector<std::string> cells = PlanCells(request, *other.plan);
    row.insert(row.end(), cells.begin(), cells.end());
    row.push_back(RatioText(*other.plan, base));
    row.push_back(LayoutText(other.plan->layout));
    rows.push_back(row);
  }
}

const std::vector<std::string> kHeader{"",        "STEP", "TOKENS/S",   "MFU",   "HIDDEN",
                                       "EXPOSED", "PEAK", "THROUGHPUT", "LAYOUT"};

std::vector<std::string> BaseRow(const PlanRequest& request, const Plan& plan, const std::string& name) {
  std::vector<std::string> row{name};
  const std::vector<std::string> cells = PlanCells(request, plan);
  row.insert(row.end(), cells.begin(), cells.end());
  row.push_back("1");
  row.push_back(LayoutText(plan.layout));
  return row;
}

// A number, or +N more than `base`.
absl::StatusOr<int32_t> CountOf(const std::string& option, const std::string& text, int32_t base) {
  const bool more = !text.empty() && text[0] == '+';
  int32_t count = 0;
  if (!absl::SimpleAtoi(more ? text.substr(1) : text, &count) || count < 1 || count > (1 << 20) - base) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", text, ": expected a number of nodes, or +N more"));
  }
  return more ? base + count : count;
}

absl::StatusOr<PlanRequest> ChangedRequest(const WhatIfOptions& options, const PlanRequest& base) {
  PlanOptions changed = options.base;
  changed.overrides.insert(changed.overrides.end(), options.changes.begin(), options.changes.end());
  if (!options.cluster.empty()) changed.cluster = options.cluster;
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, ReadPlanRequest(changed));
  if (!options.nodes.empty()) {
    NodeGroup& last = request.cluster.groups.back();
    LYNX_ASSIGN_OR_RETURN(last.nodes, CountOf("--with-nodes", options.nodes, last.nodes));
  }
  // More devices are of use only to a job that may take them.
  const bool all = base.spec.resources.max_ranks == base.cluster.devices();
  if (all && request.spec.resources.max_ranks == base.spec.resources.max_ranks) {
    request.spec.resources.max_ranks = request.cluster.devices();
  }
  return request;
}

}  // namespace

int Compare(const PlanOptions& options) {
  const absl::StatusOr<PlanRequest> request = ReadPlanRequest(options);
  if (!request.ok()) return Fail(request.status());
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(*request);
  if (!comparison.ok()) return Fail(comparison.status());
  PrintComparison(*request, *comparison);
  PrintPartitions(*request, *comparison);
  return kExitOk;
}

int Explain(const PlanOptions& options) {
  const absl::StatusOr<PlanRequest> request = ReadPlanRequest(options);
  if (!request.ok()) return Fail(request.status());
  const absl::StatusOr<Explanation> explanation = ExplainPlan(*request);
  if (!explanation.ok()) return Fail(explanation.status());
  Rows rows{kHeader, BaseRow(*request, explanation->plan, "chosen")};
  AddAlternatives(*request, explanation->rejected, explanation->plan, rows);
  if (explanation->rejected.empty()) {
    std::printf("NO OTHER LAYOUT: parallel and resources of the job leave no other tensor- and pipeline-parallel sizes on these devices\n");
  } else {
    std::printf("REJECTED LAYOUTS, the fastest plan of each\n%s", TableText(rows).c_str());
  }
  rows = {kHeader, BaseRow(*request, explanation->plan, "chosen")};
  AddAlternatives(*request, explanation->sensitivities, explanation->plan, rows);
  std::printf("\nWHAT MORE WOULD BRING\n%s", TableText(rows).c_str());
  return kExitOk;
}

int WhatIf(const WhatIfOptions& options) {
  const absl::StatusOr<PlanRequest> base = ReadPlanRequest(options.base);
  if (!base.ok()) return Fail(base.status());
  const absl::StatusOr<PlanRequest> changed = ChangedRequest(options, *base);
  if (!changed.ok()) return Fail(changed.status());
  Rows rows{kHeader};
  std::optional<Plan> first;
  for (const auto& [name, request] :
       {std::pair<std::string, const PlanRequest*>{"now", &*base}, {"what if", &*changed}}) {
    const absl::StatusOr<PlanResult> result = MakePlan(*request);
    if (!result.ok()) return Fail(Annotate(result.status(), name));
    if (const auto* lacking = std::get_if<Infeasible>(&*result)) {
      rows.push_back({name, "-", "-", "-", "-", "-", "-", "-",
                      absl::StrCat("does not fit: ", lacking->reason,
                                   "; the smallest change that fits: ", lacking->suggestion)});
      continue;
    }
    const Plan& plan = std::get<Plan>(*result);
    rows.push_back(BaseRow(*request, plan, name));
    if (first) rows.back()[7] = RatioText(plan, *first);
    if (!first) first = plan;
  }
  std::fputs(TableText(rows).c_str(), stdout);
  return kExitOk;
}

}  // namespace lynx
