// Plots of a job: of its run, of one step, and of a device's memory. See job_report.h.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "planner/report/plan_table.h"
#include "planner/report/plot.h"
#include "proto/event_kind.h"
#include "report/job_report.h"
#include "report/texts.h"

namespace lynx {
namespace {

// ---- The run: states and throughput over time, numbers of each step over the steps ----
constexpr double kStepsTop = 24;  // of plots over steps
using Points = std::vector<std::pair<double, double>>;

// The style class that colours a state.
const char* StateClass(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_PLANNING: return "k-weight";
    case v1::JOB_STATE_STARTING: return "k-boundary";
    case v1::JOB_STATE_RUNNING: return "k-forward";
    default: return "k-packing";
  }
}

// Draws a bar with the job's states over time, with a mark for each important event.
std::string Strip(const v1::Job& job, const Axis& x, int64_t begin, int64_t end, double y, double bottom) {
  const auto at = [&](int64_t unix_ns) { return x.At(static_cast<double>(std::clamp(unix_ns, begin, end) - begin) * 1e-9); };
  std::string svg, marks;
  for (int i = 0; i < job.events_size(); ++i) {
    const v1::JobEvent& event = job.events(i);
    const int64_t until = i + 1 < job.events_size() ? job.events(i + 1).time_unix_ns() : end;
    if (!IsFinal(event.state()) && until > event.time_unix_ns()) {
      absl::StrAppend(&svg, SvgRect(StateClass(event.state()), at(event.time_unix_ns()), y,
                                    std::max(0.2, at(until) - at(event.time_unix_ns())), 18,
                                    absl::AsciiStrToLower(StateName(event.state()))));
    }
    const std::string title = absl::StrCat(UtcTime(event.time_unix_ns()), " UTC: ", event.kind(), ": ", event.reason());
    const std::optional<EventKind> kind = ParseEventKind(event.kind());
    const EventMark mark = kind ? InfoOf(*kind).mark : EventMark::kNone;
    const double where = at(event.time_unix_ns());
    if (mark == EventMark::kCheckpoint) {
      marks += SvgLine("mark k-checkpoint", where, y + 20, where, y + 27, title);
    } else if (mark != EventMark::kNone) {
      marks += SvgLine(mark == EventMark::kFailure ? "mark k-failure" : "mark k-change", where, y - 4, where, bottom, title);
    }
  }
  return svg + marks;
}

// A moving average over `width` points; near the ends over fewer points.
Points Smoothed(const Points& points, size_t width) {
  Points smooth;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t reach = std::min({width / 2, i, points.size() - 1 - i});
    double x = 0, y = 0;
    for (size_t k = i - reach; k <= i + reach; ++k) {
      x += points[k].first;
      y += points[k].second;
    }
    const auto count = static_cast<double>(2 * reach + 1);
    smooth.emplace_back(x / count, y / count);
  }
  return smooth;
}

// Draws a line through the points of one generation. If there are many points, it is a smoothed line, with a thin line through
// the original points behind it.
std::string Line(const Points& points) {
  constexpr size_t kFew = 24, kParts = 16;
  if (points.size() < kFew) return SvgPath("line", points);
  return SvgPath("each", points) + SvgPath("line", Smoothed(points, points.size() / kParts));
}

// Draws one line for each generation.
template <class X, class Y>
std::string Lines(const v1::JobCurves& curves, const X& x_of, const Y& y_of) {
  std::string svg;
  Points points;
  int64_t generation = 0;
  for (const v1::StepPoint& point : curves.steps()) {
    if (point.generation() != generation) {
      svg += Line(points);
      points.clear();
    }
    generation = point.generation();
    const double x = x_of(point), y = y_of(point);
    if (std::isfinite(x) && std::isfinite(y)) points.emplace_back(x, y);
  }
  return svg + Line(points);
}

// The text for a time on the axis, such as "0 s", "30 s", "1m30s".
std::string TickTime(double seconds) {
  return seconds < 60 ? Coordinate(seconds) + " s"
                      : TimeText(Nanos(static_cast<int64_t>(std::llround(seconds)) * 1'000'000'000));
}

// The part of a plot over steps that shows a number of each step, with both axes: `y_of` gives a point's number.
template <class Number>
std::string OverSteps(const v1::JobCurves& curves, const Axis& x, const Axis& y, const Number& y_of) {
  const AxisText number{[](double value) { return absl::StrFormat("%.4g", value); }};
  const auto middle = [&](const v1::StepPoint& p) { return x.At(static_cast<double>(2 * p.first_step() + p.steps()) / 2); };
  return absl::StrCat(GridBelow(x, kStepsTop, kPlotBottom, number), GridLeft(y, kPlotLeft, kPlotRight, number, 6),
                      SvgText("end", kPlotRight, kStepsTop - 10, "over steps"),
                      Lines(curves, middle, [&](const v1::StepPoint& p) { return y.At(y_of(p)); }));
}

// The axis of all steps that were trained or evaluated.
Axis StepsAxis(const v1::JobCurves& curves) {
  int64_t first = INT64_MAX, last = 0;
  const auto take = [&](int64_t begin, int64_t end) {
    first = std::min(first, begin);
    last = std::max(last, end);
  };
  for (const v1::StepPoint& point : curves.steps()) take(point.first_step(), point.first_step() + point.steps());
  for (const v1::EvaluationPoint& point : curves.evaluations()) take(point.steps_done(), point.steps_done());
  const auto low = static_cast<double>(first), high = static_cast<double>(std::max(last, first + 1));
  return {.low = low, .high = high, .from = kPlotLeft, .to = kPlotRight};
}

Table CurveTable(const v1::JobCurves& curves) {
  constexpr int kMaxRows = 64;
  Table table{.columns = {Right("steps"), Right("attempt"), "reported", Right("loss"), Right("tokens/s"), Right("step")}};
  const int stride = std::max(1, curves.steps_size() / kMaxRows);
  for (int i = 0; i < curves.steps_size(); i += stride) {
    const v1::StepPoint& point = curves.steps(i);
    const int64_t last = point.first_step() + point.steps();
    table.rows.push_back({point.steps() == 1 ? absl::StrCat(last) : absl::StrCat(point.first_step() + 1, "-", last),
                          absl::StrCat(point.generation()), UtcTime(point.time_unix_ns()) + " UTC",
                          absl::StrFormat("%.4f", point.loss()), Count(point.tokens_per_second()),
                          TimeText(Nanos(point.step_ns()))});
  }
  return table;
}

// ---- One step: what each stage does at which time, with the prediction above the measurement ----
constexpr double kLaneLeft = 150, kLaneTop = 6;
constexpr double kCompute = 20, kTransfers = 7, kBetween = 5, kBetweenStages = 16;
constexpr size_t kMaxStages = 16;   // of a plot
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

// ---- The memory of a device ----
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

std::string RunPlot(const v1::Job& job, const v1::JobCurves& curves, Nanos now) {
  if (job.events().empty()) return "";
  const int64_t begin = job.submitted_unix_ns();
  const int64_t end = std::max(begin + 1'000'000, job.ended_unix_ns() != 0 ? job.ended_unix_ns() : now.value);
  const Axis x{.low = 0, .high = static_cast<double>(end - begin) * 1e-9, .from = kPlotLeft, .to = kPlotRight};
  double fastest = 0;
  for (const v1::StepPoint& point : curves.steps()) {
    if (std::isfinite(point.tokens_per_second())) fastest = std::max(fastest, point.tokens_per_second());
  }
  constexpr double kStrip = 10, kTop = 58;
  const Axis y{.low = 0, .high = fastest > 0 ? fastest * 1.08 : 1, .from = kPlotBottom, .to = kTop};
  std::string svg = GridBelow(x, kTop, kPlotBottom, {TickTime});
  absl::StrAppend(&svg, GridLeft(y, kPlotLeft, kPlotRight, {Count}), SvgText("end", kPlotLeft - 8, kStrip + 14, "state"),
                  SvgText("end", kPlotLeft - 8, kTop - 12, "tokens/s"));
  absl::StrAppend(
      &svg, Lines(
                curves, [&](const v1::StepPoint& p) { return x.At(static_cast<double>(p.time_unix_ns() - begin) * 1e-9); },
                [&](const v1::StepPoint& p) { return y.At(p.tokens_per_second()); }));
  absl::StrAppend(&svg, Strip(job, x, begin, end, kStrip, kPlotBottom));
  const std::string legend = Legend({{"packing", "queued"},
                                     {"weight", "planning"},
                                     {"boundary", "starting"},
                                     {"forward", "running"},
                                     {"failure", "failure"},
                                     {"change", "change"},
                                     {"checkpoint", "checkpoint"}});
  return absl::StrCat(legend, SvgPlot("States and throughput over the time since the job was submitted",
                                      absl::StrCat("The job is ", absl::AsciiStrToLower(StateName(job.state())),
                                                   "; its fastest point is ", Count(fastest), " tokens per second."),
                                      kPlotHeight, svg));
}

std::string LossPlot(const v1::JobCurves& curves) {
  double low = INFINITY, high = -INFINITY;
  const auto take = [&](double loss) {
    if (!std::isfinite(loss)) return;
    low = std::min(low, loss);
    high = std::max(high, loss);
  };
  for (const v1::StepPoint& point : curves.steps()) take(point.loss());
  for (const v1::EvaluationPoint& point : curves.evaluations()) take(point.loss());
  if (!(low <= high)) return "";
  const double margin = std::max({(high - low) * 0.06, 1e-3, std::abs(high) * 1e-6});
  const Axis x = StepsAxis(curves);
  const Axis y{.low = low - margin, .high = high + margin, .from = kPlotBottom, .to = kStepsTop};
  std::string svg = absl::StrCat(SvgText("end", kPlotLeft - 8, kStepsTop - 10, "nats"),
                                 OverSteps(curves, x, y, [](const v1::StepPoint& p) { return p.loss(); }));
  for (const v1::EvaluationPoint& point : curves.evaluations()) {
    if (!std::isfinite(point.loss())) continue;
    absl::StrAppend(&svg, SvgCircle("evaluation", x.At(static_cast<double>(point.steps_done())), y.At(point.loss()), 4,
                                    absl::StrCat("validation after step ", point.steps_done(), ": ",
                                                 absl::StrFormat("%.4f", point.loss()))));
  }
  const std::string evaluated =
      curves.evaluations().empty() ? "" : Legend({{"line", "training"}, {"evaluation", "validation"}});
  return absl::StrCat(
      evaluated,
      SvgPlot("Loss over the steps",
              absl::StrFormat("From %.4f at the first step to %.4f at the last; each attempt is a line of its own.",
                              curves.steps().empty() ? high : curves.steps(0).loss(),
                              curves.steps().empty() ? low : curves.steps(curves.steps_size() - 1).loss()),
              kPlotHeight, svg),
      FoldedTable(CurveTable(curves)));
}

std::string ExpertLoadPlot(const v1::JobCurves& curves) {
  double high = 0, dropped = 0, in_rounds = 0;
  for (const v1::StepPoint& point : curves.steps()) {
    high = std::max(high, point.expert_skew());
    dropped = std::max(dropped, point.expert_dropped_ratio());
    in_rounds = std::max(in_rounds, point.expert_in_rounds_ratio());
  }
  if (high == 0) return "";
  const v1::StepPoint& last = curves.steps(curves.steps_size() - 1);
  const Axis y{.low = 0, .high = high * 1.08, .from = kPlotBottom, .to = kStepsTop};
  const std::string svg = OverSteps(curves, StepsAxis(curves), y, [](const v1::StepPoint& p) { return p.expert_skew(); });
  return SvgPlot(
      "Load of experts over the steps",
      absl::StrFormat("At the last step the fullest rank received %.2f times the even share of rows; at most %.1f%% of "
                      "the rows of a step %s.",
                      last.expert_skew(), 100 * std::max(dropped, in_rounds),
                      in_rounds > 0 ? "went through rounds" : "were dropped"),
      kPlotHeight, svg);
}

std::string StepPlot(const TracedJob& traced) {
  const Nanos whole = std::max(traced.measured.end, traced.plan.step);
  const Axis x{.low = 0, .high = static_cast<double>(whole.value), .from = kLaneLeft, .to = kPlotRight};
  const Simulation* const predicted = traced.simulation();
  const double lane = kCompute + 1 + kTransfers + kBetween;
  const std::vector<size_t> shown = ShownStages(traced.plan.stages.size());
  std::vector<StageTimeline> measured;
  for (size_t i = 0; i < traced.plan.stages.size(); ++i) {
    measured.push_back(TimelineOf(traced.plan.stages[i].program, traced.measured.stages[i]));
  }
  const double height = static_cast<double>(shown.size()) * ((predicted != nullptr ? 2 : 1) * lane + kBetweenStages);
  const double bottom = kLaneTop + height;
  std::string svg = GridBelow(x, kLaneTop, bottom, InMillis(), 10);
  double y = kLaneTop + 2;
  for (const size_t stage : shown) {
    const Program& program = traced.plan.stages[stage].program;
    absl::StrAppend(&svg, SvgText("strong", 0, y + 15, absl::StrCat("stage ", stage)));
    if (predicted != nullptr) {
      absl::StrAppend(&svg, SvgText("end", kLaneLeft - 8, y + 15, "predicted"),
                      Lanes(TimelineOf(program, predicted->stages[stage].spans), whole, x, y));
      y += lane;
    }
    absl::StrAppend(&svg, SvgText("end", kLaneLeft - 8, y + 15, "measured"), Lanes(measured[stage], whole, x, y));
    y += lane + kBetweenStages;
  }
  // Marks the predicted and the measured end of the step.
  const auto end = [&](const char* classes, Nanos at, const std::string& title) {
    const double where = x.At(static_cast<double>(at.value));
    absl::StrAppend(&svg, SvgLine(classes, where, kLaneTop, where, bottom, title));
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

std::string StagesMemory(const Plan& plan, const v1::Job& job) {
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
