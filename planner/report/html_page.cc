#include "planner/report/html_page.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "planner/report/page_text.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// The page counts time in ticks. If a step is long, its ticks are longer, so that the step has at most kMaxTicks ticks.
constexpr int64_t kMaxTicks = 1'000'000'000;

// Everything that the page shows about one stage.
struct StageFacts {
  const StageTimeline& timeline;
  StageMemory memory;
  Bytes limit;  // see MemoryLimitOf
};

// Stands for the number of the microbatch in a text that all microbatches share. It has more digits than the number of any real
// microbatch, so WithoutMicrobatch can find it in the text.
constexpr int32_t kAnyMicrobatch = 987'654'321;

std::string WithoutMicrobatch(const std::string& text) {
  return absl::StrReplaceAll(text, {{absl::StrCat(kAnyMicrobatch), "#"}});
}

// A JSON list: `json` gives the text of each value.
template <class Values, class Json>
std::string List(const Values& values, const Json& json) {
  return absl::StrCat("[", absl::StrJoin(values, ",", [&](std::string* out, const auto& value) { *out += json(value); }), "]");
}

// The texts of actions. Each text is stored once.
class Texts {
 public:
  size_t IndexOf(Action action) {
    if (InfoOf(action.kind).has_microbatch) action.microbatch = kAnyMicrobatch;
    std::string text = WithoutMicrobatch(ActionText(action));
    const auto [it, fresh] = index_.try_emplace(text, rows_.size());
    if (fresh) rows_.push_back({std::move(text), WithoutMicrobatch(ActionMeaning(action))});
    return it->second;
  }

  std::string Json() const {
    return List(rows_,
                [](const auto& row) { return absl::StrCat("[", JsonString(row.first), ",", JsonString(row.second), "]"); });
  }

 private:
  std::map<std::string, size_t> index_;
  std::vector<std::pair<std::string, std::string>> rows_;
};

template <class Kind>
std::string KindsJson(int count, const char* (*id)(Kind), const char* (*name)(Kind)) {
  std::vector<Kind> kinds;
  for (int i = 0; i < count; ++i) kinds.push_back(static_cast<Kind>(i));
  return List(kinds, [&](Kind kind) {
    return absl::StrCat("{\"id\":", JsonString(id(kind)), ",\"name\":", JsonString(name(kind)), "}");
  });
}

// Writes the data that the page's script draws. Times are in ticks (a tick is 1, 10, 100, ... nanoseconds). Spans are flat
// lists of numbers. Texts that every microbatch repeats are stored once.
class DataWriter {
 public:
  DataWriter(const PredictedStep& step, const std::vector<StageFacts>& stages, const std::vector<TimeRange>& detail,
             const PageLimits& limits)
      : step_(step), stages_(stages), detail_(detail), limits_(limits) {
    while (step_.simulation.step.value / tick_ > kMaxTicks) tick_ *= 10;
  }

  std::string Json() {
    std::string stages;
    for (size_t i = 0; i < stages_.size(); ++i) absl::StrAppend(&stages, i ? ",\n" : "", Stage(i));
    const WeaveMode weave = step_.plan->layout.weave;
    const std::string detail = List(
        detail_, [&](const TimeRange& range) { return absl::StrCat("[", Ticks(range.begin), ",", Ticks(range.end), "]"); });
    return absl::StrCat("{\"tick\":", tick_, ",\"step\":", Ticks(step_.simulation.step),
                        ",\"fullest\":", FullestStage(*step_.plan), ",\"strands\":", StrandsOf(weave),
                        ",\"strandsAreMicrobatches\":", GroupOf(weave) > 1 ? "true" : "false",
                        ",\n\"kinds\":", KindsJson(kSpanKindCount, SpanKindId, SpanKindName),
                        ",\n\"memoryKinds\":", KindsJson(kMemoryKindCount, MemoryKindId, MemoryKindName),
                        ",\n\"detail\":", detail, ",\n\"texts\":", texts_.Json(), ",\n\"stages\":[", stages, "]}");
  }

 private:
  int64_t Ticks(Nanos time) const { return time.value / tick_; }

  std::string Stage(size_t index) {
    const StageFacts& facts = stages_[index];
    const StagePlan& part = step_.plan->stages[index];
    return absl::StrCat("{\"name\":", JsonString(absl::StrCat("stage ", index)),
                        ",\"layers\":", JsonString(LayersText(*step_.plan, index)),
                        ",\"lanes\":", List(facts.timeline.lanes, JsonString), ",\n\"spans\":[",
                        Spans(facts.timeline, part.program), "],\n\"shares\":", JsonString(Shares(facts.timeline)),
                        ",\n\"waterfall\":", JsonString(Waterfall(AmountsOf(facts.memory.peak), facts.limit)),
                        ",\"arena\":", part.arena.value, ",\"livePeak\":", part.live_peak.value,
                        ",\"arenaLimit\":", step_.plan->activation_limit.value, ",\n\"memory\":", Memory(facts.memory), "}");
  }

  std::string Spans(const StageTimeline& timeline, const Program& program) {
    std::string json;
    int64_t before = 0;
    for (const TimelineSpan& span : timeline.spans) {
      if (detail_.size() > 1 && span.begin >= detail_.front().end && span.end <= detail_.back().begin) continue;
      const Action& action = program[static_cast<size_t>(span.action)];
      const int64_t begin = Ticks(span.begin);
      absl::StrAppend(&json, json.empty() ? "" : ",", span.lane, ",", static_cast<int>(span.kind), ",", texts_.IndexOf(action),
                      ",", InfoOf(action.kind).has_microbatch ? action.microbatch : -1, ",");
      absl::StrAppend(&json, begin - before, ",", Ticks(span.end) - begin);
      before = begin;
    }
    return json;
  }

  // Encodes the time between the ranges that are shown in detail. Each interval has the kinds of spans on the compute lane, and
  // the share of time of each kind in thousandths. One digit stands for the kind and two digits for the share, in base 36.
  std::string Shares(const StageTimeline& timeline) const {
    if (detail_.size() == 1) return "";
    const TimeRange between{detail_.front().end, detail_.back().begin};
    const int64_t length = (between.end - between.begin).value;
    if (length <= 0) return "";
    // The time is divided into `columns` intervals: half as many as there are microbatches, but at most `most`, and always at
    // least 20. In an interval shorter than two microbatches, the shares would only show which passes happen to be in it.
    const auto most = static_cast<int64_t>(limits_.share_columns / stages_.size());
    const int64_t columns = std::max<int64_t>(20, std::min<int64_t>(most, step_.plan->microbatches / 2));
    const int64_t interval = std::max<int64_t>(1, length / columns);
    constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    return absl::StrJoin(TimesInColumns(timeline, true, between, columns), ";", [&](std::string* text, const KindTimes& times) {
      for (size_t kind = 0; kind < times.size(); ++kind) {
        const int64_t share = std::min<int64_t>(1000, (times[kind] * 1000 + interval / 2) / interval);
        if (share > 0) *text += {kDigits[kind], kDigits[share / 36], kDigits[share % 36]};
      }
    });
  }

  std::string Memory(const StageMemory& memory) const {
    const size_t limit = std::max<size_t>(200, limits_.memory_points / stages_.size());
    const std::vector<MemoryPoint> points = Thinned(memory.points, step_.simulation.step, limit);
    LiveBytes most;
    for (const MemoryPoint& point : points) {
      for (size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], point.live[k]);
    }
    std::vector<size_t> kinds;
    int64_t unit = 1;  // bytes per unit: a power of two with which no number has more than six digits
    for (size_t k = 0; k < most.size(); ++k) {
      if (most[k].value > 0) kinds.push_back(k);
      while (most[k].value / unit > 999'999) unit *= 2;
    }
    std::vector<int64_t> times, values;
    int64_t before = 0;
    for (const MemoryPoint& point : points) {
      times.push_back(Ticks(point.begin) - std::exchange(before, Ticks(point.begin)));
      for (const size_t k : kinds) values.push_back(point.live[k].value / unit);
    }
    return absl::StrCat("{\"unit\":", unit, ",\"kinds\":[", absl::StrJoin(kinds, ","), "],\"times\":[",
                        absl::StrJoin(times, ","), "],\"values\":[", absl::StrJoin(values, ","), "]}");
  }

  const PredictedStep& step_;
  const std::vector<StageFacts>& stages_;
  const std::vector<TimeRange>& detail_;
  const PageLimits& limits_;
  int64_t tick_ = 1;
  Texts texts_;
};

// A number that is not negative, with commas, such as "1,234,567".
std::string Grouped(int64_t value) {
  std::string text = absl::StrCat(value);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

class Page {
 public:
  Page(const PredictedStep& step, const PageLimits& limits)
      : request_(*step.request), plan_(*step.plan), step_(step), limits_(limits) {}

  absl::Status Gather() {
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      timelines_.push_back(TimelineOf(plan_.stages[i].program, step_.simulation.stages[i].spans));
    }
    detail_ = DetailRanges(timelines_, plan_.step, limits_.spans);
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const auto stage = static_cast<int32_t>(i);
      LYNX_ASSIGN_OR_RETURN(StageMemory memory,
                            MemoryOf(plan_.stages[i], plan_.ContextOf(stage), step_.simulation.stages[i].spans));
      stages_.push_back(
          {.timeline = timelines_[i], .memory = std::move(memory), .limit = MemoryLimitOf(request_, plan_, stage)});
    }
    return absl::OkStatus();
  }

  PlanParts Parts() const {
    const bool limited = stages_.front().limit.value > 0;
    return {.parts = {{"title", HtmlEscaped(request_.spec.name)},
                      {"subtitle", HtmlEscaped(Subtitle())},
                      {"chips", PlanChips()},
                      {"figures", Figures()},
                      {"legend", LegendItems(KindsIn(timelines_))},
                      {"timeline_note", TimelineNote()},
                      {"breakdown", BreakdownSection()},
                      {"memory_aside", limited ? "at its peak, against the limit" : "at its peak; no limit stated"},
                      {"memory", MemorySection()},
                      {"plan_table", absl::StrReplaceAll(HtmlOf(StageTable(plan_)), {{" us<", " µs<"}})},
                      {"policy_table", HtmlOf(PolicyTable(plan_))},
                      {"strands", StrandsNote()},
                      {"profile_note", HtmlEscaped(ProfileNote())},
                      {"footer", absl::StrCat("Lynx plan <code>", HtmlEscaped(plan_.digest), "</code>")}},
            .data = DataWriter(step_, stages_, detail_, limits_).Json()};
  }

 private:
  std::string Subtitle() const {
    return absl::StrCat(ModelText(plan_.model), ", vocabulary ", plan_.model.vocab, ", ", EnumName(plan_.model.dtype));
  }

  std::string PlanChips() const {
    TextPairs chips = LayoutFacts(plan_);
    chips.emplace_back("schedule", EnumName(plan_.layout.schedule));
    if (!plan_.nodes.empty()) chips.emplace_back("nodes, in the order of the ranks", NodeRunsText(plan_.nodes));
    return Chips(chips);
  }

  std::string Figures() const {
    const PlanFigures figures = FiguresOf(plan_);
    const auto stages = static_cast<int64_t>(plan_.stages.size());
    const Nanos recomputed = figures.hidden + figures.exposed;
    const int64_t stage_time = plan_.step.value * stages;
    std::string html = HeadlineFigure("Step", TimeText(plan_.step),
                                      absl::StrCat("waiting for a stage: ", PercentText(figures.stall.value, stage_time)));
    html += HeadlineFigure("Throughput", absl::StrCat(Grouped(figures.tokens_per_second), " tokens/s"),
                           absl::StrCat(Grouped(figures.tokens), " tokens a step"));
    if (recomputed.value == 0) {
      html += HeadlineFigure("Recomputation hidden", "none needed", "everything is stored");
      html += HeadlineFigure("Recomputation exposed", TimeText(Nanos(0)), "everything is stored");
    } else {
      const std::vector<Amount> parts = {{"hidden", "hidden", TimeText(figures.hidden), figures.hidden.value},
                                         {"exposed", "exposed", TimeText(figures.exposed), figures.exposed.value}};
      html += HeadlineFigure("Recomputation hidden", PercentText(figures.hidden.value, recomputed.value),
                             absl::StrCat(TimeText(figures.hidden / stages), " of ", TimeText(recomputed / stages), " a stage"),
                             Bar("meter", parts, recomputed.value));
      html += HeadlineFigure("Recomputation exposed", TimeText(figures.exposed / stages),
                             absl::StrCat(PercentText(figures.exposed.value, stage_time), " of the step, mean of the stages"));
    }
    return html + FullestFigure();
  }

  std::string FullestFigure() const {
    const size_t fullest = FullestStage(plan_);
    const StageFacts& facts = stages_[fullest];
    const Bytes total = TotalOf(facts.memory.peak), limit = facts.limit;
    if (limit.value == 0) {
      return HeadlineFigure("Peak memory", FormatBytes(total), absl::StrCat("stage ", fullest, ", no limit stated"));
    }
    const std::vector<Amount> used = {{"stored", "used", FormatBytes(total), std::min(total, limit).value}};
    return HeadlineFigure("Peak memory", FormatBytes(total), absl::StrCat("of ", FormatBytes(limit), ", stage ", fullest),
                          Bar("meter", used, limit.value));
  }

  std::string TimelineNote() const {
    if (detail_.size() == 1) return "";
    const Nanos middle = detail_.back().begin - detail_.front().end;
    return absl::StrCat("<p class=\"note\">This step has more actions than a page should hold. Each one is shown in the first ",
                        TimeText(detail_.front().end), " and the last ", TimeText(plan_.step - detail_.back().begin),
                        "; of the ", TimeText(middle),
                        " between them the page shows how every interval is divided. The tables and figures count the whole "
                        "step; <code>lynxctl plan --trace</code> writes every action.</p>\n");
  }

  // Returns the text that explains the rows of the compute lane; empty if there is only one row.
  std::string StrandsNote() const {
    const WeaveMode weave = plan_.layout.weave;
    const int32_t strands = StrandsOf(weave);
    if (strands == 1) return "";
    const std::string rows =
        GroupOf(weave) > 1 ? absl::StrCat(strands, " consecutive microbatches run side by side, and each has a row of its own")
                           : "Neighbouring passes run side by side: the upper row has forwards, the lower row everything else";
    return absl::StrCat(
        "<dt>Rows of the compute lane</dt><dd>", rows,
        ". The device computes for one of them at a time, while collectives of the others are under way.</dd>\n    ");
  }

  std::string BreakdownSection() const {
    // The waits are the last kinds of a breakdown; the busy time is all before them.
    static_assert(static_cast<int>(SpanKind::kCopyWait) == static_cast<int>(SpanKind::kCommunicationWait) + 1 &&
                  static_cast<int>(SpanKind::kStall) == static_cast<int>(SpanKind::kCopyWait) + 1 &&
                  static_cast<int>(SpanKind::kStall) + 1 == kComputeSpanKinds);
    std::vector<BarRow> rows;
    std::vector<Nanos> after;
    for (const StageFacts& facts : stages_) {
      const Breakdown times = BreakdownOf(facts.timeline);
      const auto waits = times.begin() + static_cast<int>(SpanKind::kCommunicationWait);
      const Nanos busy = std::accumulate(times.begin(), waits, Nanos(0));
      rows.push_back({absl::StrCat("stage ", rows.size()), AmountsOf(times),
                      absl::StrCat(PercentText(busy.value, plan_.step.value), " busy")});
      after.push_back(plan_.step - std::accumulate(waits, times.end(), busy));
    }
    Table table = AmountsTable(rows);
    table.columns.push_back(Right("after its last action"));
    for (size_t i = 0; i < rows.size(); ++i) table.rows[i].emplace_back(TimeText(after[i]));
    return Bars(rows, plan_.step.value) + FoldedTable(table);
  }

  std::string MemorySection() const {
    std::vector<BarRow> rows;
    std::vector<Bytes> limits;
    Bytes whole(1);
    for (const StageFacts& facts : stages_) {
      const Bytes total = TotalOf(facts.memory.peak), limit = facts.limit;
      whole = std::max({whole, limit, total});
      limits.push_back(limit);
      rows.push_back({absl::StrCat("stage ", rows.size()), AmountsOf(facts.memory.peak),
                      limit.value == 0 ? FormatBytes(total) : absl::StrCat(PercentText(total.value, limit.value), " used")});
    }
    return Bars(rows, whole.value) + FoldedTable(MemoryTable(rows, limits));
  }

  std::string ProfileNote() const {
    std::string devices;
    for (const NodeGroup& group : request_.cluster.groups) {
      const std::string kind = group.profile.device_kind.empty() ? "a device" : group.profile.device_kind;
      if (devices.find(kind) == std::string::npos) absl::StrAppend(&devices, devices.empty() ? "" : " and ", kind);
    }
    return absl::StrCat("Times are predictions, simulated with ",
                        plan_.measured_profile ? "op times measured on " : "the stated rates of ", devices,
                        ". Memory is what the program's buffers take, to the byte.");
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const PredictedStep& step_;
  const PageLimits& limits_;
  std::vector<StageTimeline> timelines_;
  std::vector<TimeRange> detail_;
  std::vector<StageFacts> stages_;
};

}  // namespace

absl::StatusOr<PlanParts> PlanPageParts(const PredictedStep& step, const PageLimits& limits) {
  Page page(step, limits);
  LYNX_RETURN_IF_ERROR(page.Gather());
  return page.Parts();
}

absl::StatusOr<std::string> HtmlPage(const PredictedStep& step, const PageLimits& limits) {
  LYNX_ASSIGN_OR_RETURN(const PlanParts plan, PlanPageParts(step, limits));
  std::string script(SharedScript());
  script.append(PlanViewScript());
  TextPairs texts = {{"{{script}}", script}, {"{{data}}", plan.data}};
  for (const PagePart& part : plan.parts) {
    const std::string place = absl::StrCat("data-part=\"", part.id, "\">");
    texts.emplace_back(place, place + part.html);
  }
  const std::string body = absl::StrReplaceAll(std::string(PlanPageBody()), {{"{{view}}", std::string(PlanView())}});
  return PageDocument(step.request->spec.name + " · Lynx plan", true, absl::StrReplaceAll(body, texts));
}

}  // namespace lynx
