#include "planner/report/html_page.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "planner/report/page_data.h"
#include "planner/report/page_text.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// A number with commas, such as "1,234,567".
std::string Grouped(int64_t value) {
  std::string text = absl::StrCat(value);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
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
            .data = PageData(step_, stages_, detail_, limits_)};
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
