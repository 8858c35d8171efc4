// Plots of the run: states and throughput over time, losses over steps. See job_report.h.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/report/plot.h"
#include "proto/event_kind.h"
#include "report/job_report.h"
#include "report/texts.h"

namespace lynx {
namespace {

constexpr double kTop = 24;  // of plots over steps
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
  return absl::StrCat(GridBelow(x, kTop, kPlotBottom, number), GridLeft(y, kPlotLeft, kPlotRight, number, 6),
                      SvgText("end", kPlotRight, kTop - 10, "over steps"),
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
  const Axis y{.low = low - margin, .high = high + margin, .from = kPlotBottom, .to = kTop};
  std::string svg = absl::StrCat(SvgText("end", kPlotLeft - 8, kTop - 10, "nats"),
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
  const Axis y{.low = 0, .high = high * 1.08, .from = kPlotBottom, .to = kTop};
  const std::string svg = OverSteps(curves, StepsAxis(curves), y, [](const v1::StepPoint& p) { return p.expert_skew(); });
  return SvgPlot(
      "Load of experts over the steps",
      absl::StrFormat("At the last step the fullest rank received %.2f times the even share of rows; at most %.1f%% of "
                      "the rows of a step %s.",
                      last.expert_skew(), 100 * std::max(dropped, in_rounds),
                      in_rounds > 0 ? "went through rounds" : "were dropped"),
      kPlotHeight, svg);
}

}  // namespace lynx
