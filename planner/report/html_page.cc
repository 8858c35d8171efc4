#include "planner/report/html_page.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "planner/report/page_data.h"
#include "planner/report/page_text.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

constexpr size_t kManyStages = 12;  // if there are more stages than this, rows are thinner

// A number with commas, such as "1,234,567".
std::string Grouped(int64_t value) {
  std::string text = absl::StrCat(value);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

// Returns the time as text, with "µs" for "us". FormatDuration writes "us", because a terminal may not be able to show the
// micro sign.
std::string Time(Nanos time) { return absl::StrReplaceAll(FormatDuration(time), {{" us", " µs"}}); }

// Returns `part` / `whole` as a width in CSS: a percentage with three decimals, rounded down.
std::string Width(int64_t part, int64_t whole) {
  const auto thousandths = static_cast<int64_t>(static_cast<__int128>(part) * 100'000 / std::max<int64_t>(1, whole));
  return absl::StrFormat("%d.%03d%%", thousandths / 1000, thousandths % 1000);
}

std::string BarPart(const char* id, const char* name, int64_t part, int64_t whole, const std::string& amount) {
  if (part <= 0) return "";
  return absl::StrCat("<i class=\"k-", id, "\" style=\"width:", Width(part, whole), "\" title=\"",
                      HtmlEscaped(absl::StrCat(name, ": ", amount)), "\"></i>");
}

std::string LegendItem(const char* id, const char* name) {
  return absl::StrCat("<span><i class=\"swatch k-", id, "\"></i>", HtmlEscaped(name), "</span>");
}

std::string Figure(const char* title, const std::string& value, const std::string& more) {
  return absl::StrCat("<div class=\"figure\"><h2>", title, "</h2><p class=\"value\">", value, "</p>", more, "</div>\n");
}

std::string Sub(const std::string& text) { return absl::StrCat("<p class=\"sub\">", HtmlEscaped(text), "</p>"); }

// The text with its unit in small letters, such as "778.5 <small>ms</small>".
std::string WithSmallUnit(const std::string& text) {
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) return HtmlEscaped(text);
  return absl::StrCat(HtmlEscaped(text.substr(0, space)), " <small>", HtmlEscaped(text.substr(space + 1)), "</small>");
}

class Page {
 public:
  Page(const PredictedStep& step, const PageLimits& limits)
      : request_(*step.request), plan_(*step.plan), step_(step), limits_(limits) {}

  absl::Status Gather() {
    std::vector<StageTimeline> timelines;
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      timelines.push_back(TimelineOf(plan_.stages[i].program, step_.simulation.stages[i]));
    }
    detail_ = DetailRanges(timelines, plan_.step, limits_.spans);
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const auto stage = static_cast<int32_t>(i);
      StageFacts facts{.breakdown = BreakdownOf(timelines[i]), .limit = MemoryLimitOf(request_, plan_, stage)};
      LYNX_ASSIGN_OR_RETURN(facts.memory, MemoryOf(plan_.stages[i], plan_.ContextOf(stage), step_.simulation.stages[i]));
      facts.timeline = std::move(timelines[i]);
      stages_.push_back(std::move(facts));
    }
    return absl::OkStatus();
  }

  PlanParts Parts() const {
    return {.parts = {{"title", HtmlEscaped(request_.spec.name)},
                      {"subtitle", HtmlEscaped(Subtitle())},
                      {"chips", Chips()},
                      {"figures", Figures()},
                      {"legend", TimelineLegend()},
                      {"timeline_note", TimelineNote()},
                      {"breakdown", BreakdownSection()},
                      {"memory_aside", HtmlEscaped(MemoryAside())},
                      {"memory", MemorySection()},
                      {"plan_table", absl::StrReplaceAll(HtmlOf(StageTable(plan_)), {{" us<", " µs<"}})},
                      {"policy_table", HtmlOf(PolicyTable(plan_))},
                      {"strands", StrandsNote()},
                      {"profile_note", HtmlEscaped(ProfileNote())},
                      {"footer", Footer()}},
            .data = PageData(step_, stages_, detail_, limits_)};
  }

 private:
  std::string Subtitle() const {
    const ModelSpec& m = plan_.model;
    return absl::StrCat(EnumName(m.family), " with ", m.layers, " layers, hidden ", m.hidden, ", ", m.heads,
                        " heads, sequence ", m.seq, ", vocabulary ", m.vocab, ", ", EnumName(m.dtype));
  }

  std::string Chips() const {
    std::vector<std::pair<std::string, std::string>> chips = {
        {"layout", LayoutText(plan_.layout)},
        {"ranks", absl::StrCat(plan_.layout.ranks())},
        {"micro-batch", absl::StrCat(plan_.micro_batch, " × ", plan_.microbatches)},
        {"recompute", EnumName(plan_.mode)},
        {"schedule", EnumName(plan_.layout.schedule)}};
    if (!plan_.nodes.empty()) chips.emplace_back("nodes, in the order of the ranks", NodeRunsText(plan_.nodes));
    std::string html;
    for (const auto& [name, value] : chips) {
      absl::StrAppend(&html, "<li>", name, " <b>", HtmlEscaped(value), "</b></li>");
    }
    return html;
  }

  std::string Figures() const {
    const PlanFigures figures = FiguresOf(plan_);
    const auto stages = static_cast<int64_t>(plan_.stages.size());
    const Nanos recomputed = figures.hidden + figures.exposed;
    const int64_t stage_time = plan_.step.value * stages;
    std::string html = Figure("Step", WithSmallUnit(Time(plan_.step)),
                              Sub(absl::StrCat("waiting for a stage: ", PercentText(figures.stall.value, stage_time))));
    html += Figure("Throughput", absl::StrCat(Grouped(figures.tokens_per_second), " <small>tokens/s</small>"),
                   Sub(absl::StrCat(Grouped(figures.tokens), " tokens a step")));
    if (recomputed.value == 0) {
      html += Figure("Recomputation hidden", "none <small>needed</small>", Sub("everything is stored"));
      html += Figure("Recomputation exposed", WithSmallUnit(Time(Nanos(0))), Sub("everything is stored"));
    } else {
      const std::string meter =
          absl::StrCat("<div class=\"meter\">", BarPart("hidden", "hidden", figures.hidden.value, recomputed.value, ""),
                       BarPart("exposed", "exposed", figures.exposed.value, recomputed.value, ""), "</div>");
      html += Figure(
          "Recomputation hidden", PercentText(figures.hidden.value, recomputed.value),
          absl::StrCat(meter, Sub(absl::StrCat(Time(figures.hidden / stages), " of ", Time(recomputed / stages), " a stage"))));
      html += Figure("Recomputation exposed", WithSmallUnit(Time(figures.exposed / stages)),
                     Sub(absl::StrCat(PercentText(figures.exposed.value, stage_time), " of the step, mean of the stages")));
    }
    return html + FullestFigure();
  }

  std::string FullestFigure() const {
    const int32_t fullest = FullestStage(stages_);
    const StageFacts& facts = stages_[static_cast<size_t>(fullest)];
    const Bytes total = TotalOf(facts.memory.peak);
    std::string more;
    if (facts.limit.value > 0) {
      absl::StrAppend(&more, "<div class=\"meter\">",
                      BarPart("stored", "used", std::min(total, facts.limit).value, facts.limit.value, FormatBytes(total)),
                      "</div>", Sub(absl::StrCat("of ", FormatBytes(facts.limit), ", stage ", fullest)));
    } else {
      more = Sub(absl::StrCat("stage ", fullest, ", no limit stated"));
    }
    return Figure("Peak memory", WithSmallUnit(FormatBytes(total)), more);
  }

  bool Occurs(SpanKind kind) const {
    return std::any_of(stages_.begin(), stages_.end(), [&](const StageFacts& facts) {
      const auto& spans = facts.timeline.spans;
      return std::any_of(spans.begin(), spans.end(),
                         [&](const TimelineSpan& span) { return span.kind == kind && span.begin < span.end; });
    });
  }

  std::string TimelineLegend() const {
    std::string html;
    for (int i = 0; i < kSpanKindCount; ++i) {
      const auto kind = static_cast<SpanKind>(i);
      if (Occurs(kind)) html += LegendItem(SpanKindId(kind), SpanKindName(kind));
    }
    return html;
  }

  std::string TimelineNote() const {
    if (detail_.size() == 1) return "";
    const Nanos middle = detail_.back().begin - detail_.front().end;
    return absl::StrCat("<p class=\"note\">This step has more actions than a page should hold. Each one is shown in the first ",
                        Time(detail_.front().end), " and the last ", Time(plan_.step - detail_.back().begin), "; of the ",
                        Time(middle),
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

  std::string BarsClass() const { return plan_.stages.size() > kManyStages ? "bars many" : "bars"; }

  std::string BreakdownSection() const {
    std::string html = absl::StrCat("<div class=\"", BarsClass(), "\">\n");
    Breakdown all;
    for (size_t i = 0; i < stages_.size(); ++i) {
      absl::StrAppend(&html, "<div class=\"row\"><b>stage ", i, "</b><span class=\"bar\" aria-hidden=\"true\">");
      for (size_t k = 0; k < stages_[i].breakdown.size(); ++k) {
        const auto kind = static_cast<SpanKind>(k);
        const Nanos time = stages_[i].breakdown[k];
        all[k] += time;
        html += BarPart(SpanKindId(kind), SpanKindName(kind), time.value, plan_.step.value, Time(time));
      }
      absl::StrAppend(&html, "</span><span class=\"end\">", PercentText(Busy(stages_[i]).value, plan_.step.value),
                      " busy</span></div>\n");
    }
    html += "</div>\n<div class=\"legend\">";
    for (size_t k = 0; k < all.size(); ++k) {
      const auto kind = static_cast<SpanKind>(k);
      if (all[k].value > 0) html += LegendItem(SpanKindId(kind), SpanKindName(kind));
    }
    return absl::StrCat(html, "</div>\n<details><summary>As a table</summary><div class=\"scroll\">",
                        HtmlOf(BreakdownTable(all)), "</div></details>\n");
  }

  static Nanos Busy(const StageFacts& facts) {
    Nanos busy;
    for (const Nanos time : facts.breakdown) busy += time;
    for (const SpanKind idle : {SpanKind::kStall, SpanKind::kCommunicationWait, SpanKind::kCopyWait}) {
      busy -= facts.breakdown[static_cast<size_t>(idle)];
    }
    return busy;
  }

  Table BreakdownTable(const Breakdown& all) const {
    Table table;
    table.columns = {{"stage", Align::kRight}};
    for (size_t k = 0; k < all.size(); ++k) {
      if (all[k].value > 0) table.columns.emplace_back(std::string(SpanKindName(static_cast<SpanKind>(k))), Align::kRight);
    }
    table.columns.emplace_back("after its last action", Align::kRight);
    for (size_t i = 0; i < stages_.size(); ++i) {
      std::vector<Cell> row = {absl::StrCat(i)};
      Nanos rest = plan_.step;
      for (size_t k = 0; k < all.size(); ++k) {
        rest -= stages_[i].breakdown[k];
        if (all[k].value > 0) row.emplace_back(Time(stages_[i].breakdown[k]));
      }
      row.emplace_back(Time(rest));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  std::string MemoryAside() const {
    return stages_.front().limit.value > 0 ? "at its peak, against the limit" : "at its peak; no limit stated";
  }

  std::string MemorySection() const {
    Bytes whole(1);
    LiveBytes all;
    for (const StageFacts& facts : stages_) {
      whole = std::max({whole, facts.limit, TotalOf(facts.memory.peak)});
      for (size_t k = 0; k < all.size(); ++k) all[k] += facts.memory.peak[k];
    }
    std::string html = absl::StrCat("<div class=\"", BarsClass(), "\">\n");
    for (size_t i = 0; i < stages_.size(); ++i) {
      absl::StrAppend(&html, "<div class=\"row\"><b>stage ", i, "</b><span class=\"bar\" aria-hidden=\"true\">");
      for (size_t k = 0; k < all.size(); ++k) {
        const auto kind = static_cast<MemoryKind>(k);
        const Bytes bytes = stages_[i].memory.peak[k];
        html += BarPart(MemoryKindId(kind), MemoryKindName(kind), bytes.value, whole.value, FormatBytes(bytes));
      }
      const Bytes free = stages_[i].limit - TotalOf(stages_[i].memory.peak);
      if (stages_[i].limit.value > 0) html += BarPart("free", "free", free.value, whole.value, FormatBytes(free));
      absl::StrAppend(&html, "</span><span class=\"end\">", MemoryEnd(stages_[i]), "</span></div>\n");
    }
    html += "</div>\n<div class=\"legend\">";
    for (size_t k = 0; k < all.size(); ++k) {
      const auto kind = static_cast<MemoryKind>(k);
      if (all[k].value > 0) html += LegendItem(MemoryKindId(kind), MemoryKindName(kind));
    }
    return absl::StrCat(html, "</div>\n<details><summary>As a table</summary><div class=\"scroll\">", HtmlOf(MemoryTable(all)),
                        "</div></details>\n");
  }

  static std::string MemoryEnd(const StageFacts& facts) {
    const Bytes total = TotalOf(facts.memory.peak);
    if (facts.limit.value == 0) return FormatBytes(total);
    return absl::StrCat(PercentText(total.value, facts.limit.value), " used");
  }

  Table MemoryTable(const LiveBytes& all) const {
    Table table;
    table.columns = {{"stage", Align::kRight}};
    for (size_t k = 0; k < all.size(); ++k) {
      if (all[k].value > 0) table.columns.emplace_back(std::string(MemoryKindName(static_cast<MemoryKind>(k))), Align::kRight);
    }
    for (const char* title : {"together", "limit", "free"}) table.columns.emplace_back(title, Align::kRight);
    for (size_t i = 0; i < stages_.size(); ++i) {
      std::vector<Cell> row = {absl::StrCat(i)};
      for (size_t k = 0; k < all.size(); ++k) {
        if (all[k].value > 0) row.emplace_back(FormatBytes(stages_[i].memory.peak[k]));
      }
      const Bytes total = TotalOf(stages_[i].memory.peak), limit = stages_[i].limit;
      row.emplace_back(FormatBytes(total), Tone::kStrong);
      row.emplace_back(limit.value == 0 ? "none" : FormatBytes(limit));
      row.emplace_back(limit.value == 0 ? "" : FormatBytes(limit - total), limit < total ? Tone::kBad : Tone::kPlain);
      table.rows.push_back(std::move(row));
    }
    return table;
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

  std::string Footer() const { return absl::StrCat("Lynx plan <code>", HtmlEscaped(plan_.digest), "</code>"); }

  const PlanRequest& request_;
  const Plan& plan_;
  const PredictedStep& step_;
  const PageLimits& limits_;
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
  script.append(PlanViewScript()).append(PageScript());
  std::vector<std::pair<std::string, std::string>> texts = {{"{{name}}", HtmlEscaped(step.request->spec.name)},
                                                            {"{{style}}", std::string(PageStyle())},
                                                            {"{{script}}", script},
                                                            {"{{data}}", plan.data}};
  for (const PagePart& part : plan.parts) {
    const std::string place = absl::StrCat("data-part=\"", part.id, "\">");
    texts.emplace_back(place, place + part.html);
  }
  const std::string page = absl::StrReplaceAll(std::string(PageTemplate()), {{"{{view}}", std::string(PlanView())}});
  return absl::StrReplaceAll(page, texts);
}

}  // namespace lynx
