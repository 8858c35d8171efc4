// Plot of a step: what each stage did at which time, with the prediction above the measurement. See job_report.h.
#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/report/plot.h"
#include "report/job_report.h"

namespace lynx {
namespace {

constexpr double kLeft = 150, kTop = 6;
constexpr double kCompute = 20, kTransfers = 7, kBetween = 5, kBetweenStages = 16;
constexpr size_t kMaxStages = 16;
constexpr int64_t kColumns = 2000;  // columns of a lane; see Run

// Consecutive columns of one kind. The kind of a column is the one that takes most of its time. A column that is busy for less
// than a quarter of its time shows nothing.
struct Run {
  int64_t begin = 0, end = 0;
  int kind = -1;  // -1: the columns show nothing
};
std::vector<Run> RunsOf(const std::vector<KindTimes>& columns, Nanos whole) {
  std::vector<Run> runs;
  for (int64_t column = 0; column < kColumns; ++column) {
    const KindTimes& times = columns[static_cast<size_t>(column)];
    const int64_t busy = std::accumulate(times.begin(), times.end(), int64_t{0});
    const bool shown = busy > 0 && busy * 4 >= whole.value / kColumns;
    const int kind = shown ? static_cast<int>(std::max_element(times.begin(), times.end()) - times.begin()) : -1;
    if (runs.empty() || runs.back().kind != kind) runs.push_back({column, column, kind});
    runs.back().end = column + 1;
  }
  return runs;
}

// Draws the compute lane, or what is in flight on the other ones.
std::string LaneRects(const StageTimeline& timeline, bool compute, Nanos whole, const Axis& x, double y, double height) {
  std::string rects;
  for (const Run& run : RunsOf(TimesInColumns(timeline, compute, {Nanos(0), whole}, kColumns), whole)) {
    if (run.kind < 0) continue;
    const auto kind = static_cast<SpanKind>(run.kind);
    const double column = (x.to - x.from) / kColumns;
    const auto length = static_cast<double>(run.end - run.begin);
    const Nanos time(static_cast<int64_t>(static_cast<double>(whole.value) * length / kColumns));
    absl::StrAppend(&rects, SvgRect(absl::StrCat("k-", SpanKindId(kind)), x.from + static_cast<double>(run.begin) * column, y,
                                    length * column, height, absl::StrCat(SpanKindName(kind), ", ", TimeText(time))));
  }
  return rects;
}

// Draws the compute lane above the transfers that run at the same time.
std::string Lanes(const StageTimeline& timeline, Nanos whole, const Axis& x, double y) {
  return absl::StrCat(LaneRects(timeline, true, whole, x, y, kCompute),
                      LaneRects(timeline, false, whole, x, y + kCompute + 1, kTransfers));
}

// The stages to show: all of them, or if there are too many, the first and the last ones.
std::vector<size_t> ShownStages(size_t stages) {
  std::vector<size_t> shown;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (stages <= kMaxStages || stage < kMaxStages / 2 || stage >= stages - kMaxStages / 2) shown.push_back(stage);
  }
  return shown;
}

}  // namespace

std::string StepPlot(const TracedJob& traced) {
  const Nanos whole = std::max(traced.measured.end, traced.plan.step);
  const Axis x{.low = 0, .high = static_cast<double>(whole.value), .from = kLeft, .to = kPlotRight};
  const Simulation* const predicted = traced.simulation();
  const double lane = kCompute + 1 + kTransfers + kBetween;
  const std::vector<size_t> shown = ShownStages(traced.plan.stages.size());
  std::vector<StageTimeline> measured;
  for (size_t i = 0; i < traced.plan.stages.size(); ++i) {
    measured.push_back(TimelineOf(traced.plan.stages[i].program, traced.measured.stages[i]));
  }
  const double height = static_cast<double>(shown.size()) * ((predicted != nullptr ? 2 : 1) * lane + kBetweenStages);
  const double bottom = kTop + height;
  std::string svg = GridBelow(x, kTop, bottom, InMillis(), 10);
  double y = kTop + 2;
  for (const size_t stage : shown) {
    const Program& program = traced.plan.stages[stage].program;
    absl::StrAppend(&svg, SvgText("strong", 0, y + 15, absl::StrCat("stage ", stage)));
    if (predicted != nullptr) {
      absl::StrAppend(&svg, SvgText("end", kLeft - 8, y + 15, "predicted"),
                      Lanes(TimelineOf(program, predicted->stages[stage].spans), whole, x, y));
      y += lane;
    }
    absl::StrAppend(&svg, SvgText("end", kLeft - 8, y + 15, "measured"), Lanes(measured[stage], whole, x, y));
    y += lane + kBetweenStages;
  }
  // Marks the predicted and the measured end of the step.
  const auto end = [&](const char* classes, Nanos at, const std::string& title) {
    const double where = x.At(static_cast<double>(at.value));
    absl::StrAppend(&svg, SvgLine(classes, where, kTop, where, bottom, title));
  };
  end("end-predicted", traced.plan.step, absl::StrCat("predicted end, ", TimeText(traced.plan.step)));
  end("end-measured", traced.measured.end, absl::StrCat("measured end, ", TimeText(traced.measured.end)));
  const std::string left_out = shown.size() == traced.plan.stages.size()
                                   ? ""
                                   : absl::StrCat("<p class=\"note\">Shown are the first and the last ", kMaxStages / 2, " of ",
                                                  traced.plan.stages.size(), " stages; the table has all.</p>\n");
  return absl::StrCat(
      Legend(KindsIn(measured)),
      SvgPlot("One step, predicted above measured",
              absl::StrCat("For each pipeline stage what its compute stream does over the step, and below it what is in "
                           "flight. The measured step took ",
                           TimeText(traced.measured.end), ", the predicted one ", TimeText(traced.plan.step), "."),
              bottom + 26, svg),
      left_out, FoldedTable(MeasuredStepTable(traced.plan, traced.measured, predicted)));
}

}  // namespace lynx
