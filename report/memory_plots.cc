// Plots of a device's memory. See job_report.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/report/plan_table.h"
#include "planner/report/plot.h"
#include "report/job_report.h"

namespace lynx {
namespace {

constexpr size_t kMaxPoints = 600;

std::string Figure(const std::string& caption, const std::string& content) {
  return absl::StrCat("<figure><figcaption>", HtmlEscaped(caption), "</figcaption>\n", content, "</figure>\n");
}

// Draws how full the arena is during the step. The kinds of memory are stacked.
std::string OverTime(const StageMemory& memory, Nanos step, Bytes arena) {
  constexpr double kTop = 8;
  const std::vector<MemoryPoint> points = Thinned(memory.points, step, kMaxPoints);
  const auto whole = static_cast<double>(std::max<int64_t>(1, arena.value));
  const Axis x{.low = 0, .high = static_cast<double>(std::max<int64_t>(1, step.value)), .from = kPlotLeft, .to = kPlotRight};
  const Axis y{.low = 0, .high = whole, .from = kPlotBottom, .to = kTop};
  const auto height = [&](Bytes bytes) { return y.At(static_cast<double>(bytes.value)); };
  const auto at = [&](Nanos time) { return x.At(static_cast<double>(time.value)); };
  std::vector<Bytes> below(points.size());
  std::string svg = GridLeft(y, kPlotLeft, kPlotRight, InBytes(whole));
  for (size_t kind = 0; kind < static_cast<size_t>(kMemoryKindCount); ++kind) {
    std::string upper, lower;
    bool any = false;
    for (size_t i = 0; i < points.size(); ++i) {
      const double begin = at(points[i].begin), end = i + 1 < points.size() ? at(points[i + 1].begin) : x.to;
      const double low = height(below[i]);
      below[i] += points[i].live[kind];
      any = any || points[i].live[kind].value > 0;
      const double high = height(below[i]);
      absl::StrAppend(&upper, upper.empty() ? "M" : "L", Coordinate(begin), " ", Coordinate(high), "H", Coordinate(end));
      lower = absl::StrCat("L", Coordinate(end), " ", Coordinate(low), "H", Coordinate(begin), lower);
    }
    const auto name = static_cast<MemoryKind>(kind);
    if (any) {
      absl::StrAppend(&svg, "<path class=\"k-", MemoryKindId(name), "\" d=\"", upper, lower, "Z\"><title>",
                      MemoryKindName(name), "</title></path>\n");
    }
  }
  absl::StrAppend(&svg, SvgLine("limit", kPlotLeft, kTop, kPlotRight, kTop, absl::StrCat("allocated, ", FormatBytes(arena))),
                  GridBelow(x, kPlotBottom, kPlotBottom, InMillis()));
  return SvgPlot("Activations over the step",
                 "What the arena of the fullest stage holds over the step, by kind, below what is allocated", kPlotHeight, svg);
}

}  // namespace

std::string StagesMemory(const Plan& plan, const v1::Job& job) {
  constexpr size_t kMaxStages = 16;
  const auto held = [](Bytes states, Bytes activations) -> std::vector<Amount> {
    return {{"states", "weights, gradients and optimizer states", FormatBytes(states), states.value},
            {"stored", "activations", FormatBytes(activations), activations.value}};
  };
  const size_t shown = std::min(plan.stages.size(), kMaxStages);
  std::vector<BarRow> rows;
  Bytes most(1);
  for (size_t i = 0; i < shown; ++i) {
    const auto add = [&](const std::string& name, Bytes states, Bytes activations) {
      rows.push_back({name, held(states, activations), FormatBytes(states + activations)});
      most = std::max(most, states + activations);
    };
    add(absl::StrCat("stage ", i, ", planned"), plan.stages[i].states.total(), plan.stages[i].arena);
    for (const v1::StageMeasurement& m : job.measured()) {
      if (m.steps() > 0 && m.stage() == static_cast<int32_t>(i) && m.state_bytes() + m.arena_peak_bytes() > 0) {
        add("measured", Bytes(m.state_bytes()), Bytes(m.arena_peak_bytes()));
      }
    }
  }
  return Figure(
      absl::StrCat(
          "A device of each stage at its peak, planned above measured",
          shown < plan.stages.size() ? absl::StrCat("; the first ", shown, " of ", plan.stages.size(), " stages") : ""),
      Bars(rows, most.value));
}

absl::StatusOr<std::string> MemoryPlots(const TracedJob& traced) {
  const Plan& plan = traced.plan;
  std::vector<StageMemory> stages;
  std::vector<BarRow> rows;
  std::vector<Bytes> limits;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(StageMemory memory,
                          MemoryOf(plan.stages[i], plan.ContextOf(static_cast<int32_t>(i)), traced.measured.stages[i]));
    rows.push_back({absl::StrCat("stage ", i), AmountsOf(memory.peak), ""});
    stages.push_back(std::move(memory));
    const Bytes activations = plan.activation_limit;
    const Bytes planned = activations.value == 0 ? Bytes(0) : plan.stages[i].states.total() + activations;
    limits.push_back(traced.predicted ? MemoryLimitOf(traced.request, plan, static_cast<int32_t>(i)) : planned);
  }
  const size_t fullest = FullestStage(plan);
  return absl::StrCat(
      Figure(absl::StrCat("Stage ", fullest, " at its peak"), Waterfall(rows[fullest].amounts, limits[fullest])),
      Figure(absl::StrCat("Activations of stage ", fullest, " over the measured step"),
             OverTime(stages[fullest], traced.measured.end, plan.stages[fullest].arena)),
      FoldedTable(MemoryTable(rows, limits)));
}

std::string PlannedMemory(const Plan& plan) {
  if (plan.stages.empty()) return "";
  const size_t fullest = FullestStage(plan);
  const StagePlan& stage = plan.stages[fullest];
  const auto of = [](const char* kind, const char* name, Bytes bytes) -> Amount {
    return {kind, name, FormatBytes(bytes), bytes.value};
  };
  return Figure(absl::StrCat("Stage ", fullest, " as planned"),
                Waterfall({of("weights", "weights", stage.states.weights), of("gradients", "gradients", stage.states.gradients),
                           of("states", "optimizer states", stage.states.optimizer), of("stored", "activations", stage.arena)},
                          Bytes(0)));
}

}  // namespace lynx
