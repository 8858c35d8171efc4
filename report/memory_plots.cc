// Plots of a device's memory. See job_report.h.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "report/job_report.h"
#include "report/plot.h"

namespace lynx {
namespace {

constexpr size_t kMaxPoints = 600;

// The unit for an axis of bytes, chosen for the largest amount.
struct ByteUnit {
  double bytes = 1;
  std::string name = "B";
  double Of(Bytes amount) const { return static_cast<double>(amount.value) / bytes; }
  AxisText Text() const {
    return [unit = name](double amount) { return absl::StrFormat("%.4g %s", amount, unit); };
  }
};
ByteUnit UnitFor(Bytes most) {
  if (most >= kGiB) return {static_cast<double>(kGiB.value), "GiB"};
  if (most >= kMiB) return {static_cast<double>(kMiB.value), "MiB"};
  if (most >= kKiB) return {static_cast<double>(kKiB.value), "KiB"};
  return {};
}

size_t FullestStage(const Plan& plan) {
  const auto total = [](const StagePlan& stage) { return stage.states.total() + stage.arena; };
  const auto fullest = std::max_element(plan.stages.begin(), plan.stages.end(),
                                        [&](const StagePlan& a, const StagePlan& b) { return total(a) < total(b); });
  return static_cast<size_t>(fullest - plan.stages.begin());
}

struct Step {
  std::string name, kind;
  Bytes bytes;
};

// A waterfall chart: the bar of each amount begins where the previous bar ends.
std::string Waterfall(const std::vector<Step>& steps, Bytes limit, const std::string& caption) {
  constexpr double kLeft = 190, kRow = 24, kTop = 4;
  Bytes total;
  for (const Step& step : steps) total += step.bytes;
  const Bytes whole = std::max({total, limit, Bytes(1)});
  const ByteUnit unit = UnitFor(whole);
  const Axis x{.low = 0, .high = unit.Of(whole), .from = kLeft, .to = kPlotWidth - 110};
  const double bottom = kTop + static_cast<double>(steps.size() + 1) * kRow;
  std::string svg = GridBelow(x, kTop, bottom, unit.Text(), 6);
  Bytes before;
  double y = kTop;
  const auto at = [&](Bytes bytes) { return x.At(unit.Of(bytes)); };
  if (limit.value > 0) {
    absl::StrAppend(&svg, SvgLine("limit", at(limit), kTop, at(limit), bottom, absl::StrCat("limit, ", FormatBytes(limit))));
  }
  const auto row = [&](const Step& step, Bytes from, const char* name_class) {
    absl::StrAppend(&svg, SvgText(name_class, kLeft - 8, y + 16, step.name),
                    SvgRect("c-" + step.kind, at(from), y + 3, std::max(1.0, at(from + step.bytes) - at(from)), kRow - 6,
                            absl::StrCat(step.name, ": ", FormatBytes(step.bytes))),
                    SvgText("amount", at(from + step.bytes) + 6, y + 16, FormatBytes(step.bytes)));
    y += kRow;
  };
  for (const Step& step : steps) {
    row(step, before, "end");
    before += step.bytes;
    absl::StrAppend(&svg, SvgLine("join", at(before), y - 3, at(before), y + 3));
  }
  row({"together", "total", total}, Bytes(0), "end strong");
  return absl::StrCat("<figure><figcaption>", caption, "</figcaption>\n",
                      SvgPlot("Memory of a device at its peak, kind by kind",
                              absl::StrCat("Together ", FormatBytes(total),
                                           limit.value > 0 ? absl::StrCat(", of at most ", FormatBytes(limit)) : ""),
                              bottom + 26, svg),
                      "</figure>\n");
}

// Draws how full the arena is during the step. The kinds of memory are stacked.
std::string OverTime(const StageMemory& memory, Nanos step, Bytes arena, const std::string& caption) {
  constexpr double kLeft = 90, kTop = 8, kBottom = 250;
  const std::vector<MemoryPoint> points = Thinned(memory.points, step, kMaxPoints);
  const Axis x{.low = 0, .high = std::max(1e-6, static_cast<double>(step.value) * 1e-6), .from = kLeft, .to = kPlotWidth - 8};
  const ByteUnit unit = UnitFor(arena);
  const Axis y{.low = 0, .high = std::max(1e-9, unit.Of(arena)), .from = kBottom, .to = kTop};
  const auto at = [&](Nanos time) { return x.At(static_cast<double>(time.value) * 1e-6); };
  std::vector<Bytes> below(points.size());
  std::string svg = GridLeft(y, kLeft, x.to, unit.Text());
  for (size_t kind = 0; kind < static_cast<size_t>(kMemoryKindCount); ++kind) {
    std::string upper, lower;
    bool any = false;
    for (size_t i = 0; i < points.size(); ++i) {
      const double begin = at(points[i].begin), end = i + 1 < points.size() ? at(points[i + 1].begin) : x.to;
      const double low = y.At(unit.Of(below[i]));
      below[i] += points[i].live[kind];
      any = any || points[i].live[kind].value > 0;
      const double high = y.At(unit.Of(below[i]));
      absl::StrAppend(&upper, upper.empty() ? "M" : "L", Coordinate(begin), " ", Coordinate(high), "H", Coordinate(end));
      lower = absl::StrCat("L", Coordinate(end), " ", Coordinate(low), "H", Coordinate(begin), lower);
    }
    const auto name = static_cast<MemoryKind>(kind);
    if (any) {
      absl::StrAppend(&svg, "<path class=\"c-", MemoryKindId(name), "\" d=\"", upper, lower, "Z\"><title>",
                      MemoryKindName(name), "</title></path>\n");
    }
  }
  absl::StrAppend(&svg, SvgLine("limit", kLeft, y.to, x.to, y.to, absl::StrCat("allocated, ", FormatBytes(arena))),
                  GridBelow(x, kBottom, kBottom, [](double value) { return absl::StrCat(Coordinate(value), " ms"); }));
  return absl::StrCat(
      "<figure><figcaption>", caption, "</figcaption>\n",
      SvgPlot("Activations over the step",
              "What the arena of the fullest stage holds over the step, by kind, below what is allocated", kBottom + 26, svg),
      "</figure>\n");
}

Table MemoryTable(const std::vector<StageMemory>& stages, const std::vector<Bytes>& limits) {
  Table table;
  table.columns = {{"stage", Align::kRight}};
  for (int kind = 0; kind < kMemoryKindCount; ++kind)
    table.columns.emplace_back(MemoryKindName(static_cast<MemoryKind>(kind)), Align::kRight);
  table.columns.emplace_back("together", Align::kRight);
  table.columns.emplace_back("limit", Align::kRight);
  for (size_t i = 0; i < stages.size(); ++i) {
    std::vector<Cell> row = {absl::StrCat(i)};
    for (const Bytes bytes : stages[i].peak)
      row.emplace_back(FormatBytes(bytes), bytes.value == 0 ? Tone::kMuted : Tone::kPlain);
    row.emplace_back(FormatBytes(TotalOf(stages[i].peak)), Tone::kStrong);
    row.emplace_back(limits[i].value == 0 ? "none stated" : FormatBytes(limits[i]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string StagesMemory(const Plan& plan, const v1::Job& job) {
  constexpr double kLeft = 160, kBar = 12, kStage = 38, kTop = 4;
  constexpr size_t kMaxStages = 16;
  struct Held {
    Bytes states, activations;
    Bytes total() const { return states + activations; }
  };
  std::vector<Held> planned, measured(plan.stages.size());
  for (const StagePlan& stage : plan.stages) planned.push_back({stage.states.total(), stage.arena});
  for (const v1::StageMeasurement& m : job.measured()) {
    if (m.steps() > 0 && m.stage() >= 0 && static_cast<size_t>(m.stage()) < measured.size()) {
      measured[static_cast<size_t>(m.stage())] = {Bytes(m.state_bytes()), Bytes(m.arena_peak_bytes())};
    }
  }
  Bytes most(1);
  for (size_t i = 0; i < planned.size(); ++i) most = std::max({most, planned[i].total(), measured[i].total()});
  const ByteUnit unit = UnitFor(most);
  const Axis x{.low = 0, .high = unit.Of(most), .from = kLeft, .to = kPlotWidth - 110};
  const size_t shown = std::min(planned.size(), kMaxStages);
  const double bottom = kTop + static_cast<double>(shown) * kStage;
  std::string svg = GridBelow(x, kTop, bottom, unit.Text(), 6);
  const auto bar = [&](const Held& held, double y, const std::string& what) {
    const double states = x.At(unit.Of(held.states)), end = x.At(unit.Of(held.total()));
    absl::StrAppend(&svg, SvgText("end", kLeft - 8, y + kBar - 1, what),
                    SvgRect("c-states", kLeft, y, states - kLeft, kBar,
                            absl::StrCat(what, ": weights, gradients and optimizer states, ", FormatBytes(held.states))),
                    SvgRect("c-stored", states, y, end - states, kBar,
                            absl::StrCat(what, ": activations, ", FormatBytes(held.activations))),
                    SvgText("amount", end + 6, y + kBar - 1, FormatBytes(held.total())));
  };
  double y = kTop + 2;
  for (size_t i = 0; i < shown; ++i, y += kStage) {
    absl::StrAppend(&svg, SvgText("strong", 0, y + kBar - 1, absl::StrCat("stage ", i)));
    bar(planned[i], y, "planned");
    if (measured[i].total().value > 0) bar(measured[i], y + kBar + 4, "measured");
  }
  return absl::StrCat(
      "<figure><figcaption>A device of each stage at its peak, planned above measured",
      shown < planned.size() ? absl::StrCat("; the first ", shown, " of ", planned.size(), " stages") : "", "</figcaption>\n",
      "<div class=\"legend\"><span><i class=\"swatch k-states\"></i>weights, gradients and optimizer states</span>"
      "<span><i class=\"swatch k-stored\"></i>activations</span></div>\n",
      SvgPlot("Memory of each stage at its peak, planned and measured",
              absl::StrCat("The fullest one holds ", FormatBytes(most), "."), bottom + 26, svg),
      "</figure>\n");
}

absl::StatusOr<std::string> MemoryPlots(const TracedJob& traced) {
  const Plan& plan = traced.plan;
  std::vector<StageMemory> stages;
  std::vector<Bytes> limits;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    StageTimes times;
    times.spans = traced.measured.stages[i];
    LYNX_ASSIGN_OR_RETURN(StageMemory memory, MemoryOf(plan.stages[i], plan.ContextOf(static_cast<int32_t>(i)), times));
    stages.push_back(std::move(memory));
    limits.push_back(traced.predicted.has_value() ? MemoryLimitOf(traced.request, plan, static_cast<int32_t>(i))
                                                  : plan.activation_limit);
  }
  const size_t fullest = FullestStage(plan);
  std::vector<Step> steps;
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    const auto name = static_cast<MemoryKind>(kind);
    const Bytes bytes = stages[fullest].peak[static_cast<size_t>(kind)];
    if (bytes.value > 0) steps.push_back({MemoryKindName(name), MemoryKindId(name), bytes});
  }
  return absl::StrCat(Waterfall(steps, limits[fullest], absl::StrCat("Stage ", fullest, " at its peak")),
                      OverTime(stages[fullest], traced.measured.end, plan.stages[fullest].arena,
                               absl::StrCat("Activations of stage ", fullest, " over the measured step")),
                      FoldedTable(MemoryTable(stages, limits)));
}

std::string PlannedMemory(const Plan& plan) {
  if (plan.stages.empty()) return "";
  const size_t fullest = FullestStage(plan);
  const StagePlan& stage = plan.stages[fullest];
  const std::vector<Step> steps = {{"weights", "weights", stage.states.weights},
                                   {"gradients", "gradients", stage.states.gradients},
                                   {"optimizer states", "states", stage.states.optimizer},
                                   {"activations", "stored", stage.arena}};
  return Waterfall(steps, Bytes(0), absl::StrCat("Stage ", fullest, " as planned"));
}

}  // namespace lynx
