// See job_report.h.
#include "report/job_report.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "planner/problem/layout.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"
#include "report/texts.h"

namespace lynx {
namespace {

std::string Time(int64_t unix_ns) { return unix_ns == 0 ? "-" : UtcTime(unix_ns); }

std::string Duration(int64_t ns) { return TimeText(Nanos(ns)); }

// Deviation of `measured` from `predicted`, such as "+4.0%".
std::string Difference(int64_t predicted, int64_t measured) {
  return predicted == 0
             ? ""
             : absl::StrFormat("%+.1f%%", 100.0 * static_cast<double>(measured - predicted) / static_cast<double>(predicted));
}

// Time of recomputation per step, over one or all stages of a job.
struct Recomputed {
  int64_t hidden = 0, exposed = 0;
  int64_t sum() const { return hidden + exposed; }
};

class Page {
 public:
  explicit Page(const JobReport& report) : report_(report), job_(*report.job), curves_(*report.curves), plan_(report.plan) {
    for (const v1::StageMeasurement& m : job_.measured()) {
      if (m.steps() == 0) continue;
      measured_.hidden += m.recompute_hidden_ns();
      measured_.exposed += m.recompute_exposed_ns();
      if (m.step_ns() > measured_step_) measured_steps_ = m.steps();
      measured_step_ = std::max(measured_step_, m.step_ns());
      measured_peak_ = std::max(measured_peak_, m.arena_peak_bytes());
    }
    if (plan_ == nullptr) return;
    const PlanFigures planned = FiguresOf(*plan_);
    predicted_ = {planned.hidden.value, planned.exposed.value};
    planned_peak_ = planned.peak.value;
  }

  absl::StatusOr<std::vector<PagePart>> Parts() const {
    LYNX_ASSIGN_OR_RETURN(const std::string memory, Memory());
    std::vector<PagePart> parts = {
        {"head", Head()},
        {"figures", absl::StrCat("<section class=\"figures\" aria-label=\"Headline figures\">\n", Figures(), "</section>\n")},
        {"run", ReportSection("run", "The run", Aside(), RunPlot(job_, curves_, report_.now))},
        {"recoveries", Recoveries()},
        {"step", Step()},
        {"recomputation", Recomputation()},
        {"memory", memory},
        {"loss", ReportSection("loss", "Loss", "mean over the tokens of a step", LossPlot(curves_))},
        {"experts", ReportSection("experts", "Load of experts", "rows of the fullest rank, beside the even share",
                                  ExpertLoadPlot(curves_))},
        {"plan", PlanSection()},
        {"events", Events()}};
    std::erase_if(parts, [](const PagePart& part) { return part.html.empty(); });
    return parts;
  }

 private:
  std::string Head() const {
    return absl::StrCat("<div class=\"title\"><h1>", HtmlEscaped(job_.spec().name()), "</h1><p>", HtmlEscaped(Subtitle()),
                        "</p></div>\n<ul class=\"chips\" aria-label=\"Job\">", JobChips(), "</ul>\n");
  }

  std::string Subtitle() const {
    if (plan_ == nullptr) return absl::StrCat("job ", job_.id());
    return absl::StrCat("job ", job_.id(), ": ", ModelText(plan_->model), ", ", EnumName(plan_->model.dtype));
  }

  std::string JobChips() const {
    TextPairs chips = plan_ == nullptr ? TextPairs() : LayoutFacts(*plan_);
    chips.emplace(chips.begin(), "state", absl::AsciiStrToLower(StateName(job_.state())));
    chips.emplace_back("attempts", absl::StrCat(job_.generation()));
    return Chips(chips);
  }

  std::string Figures() const {
    const v1::Progress& progress = job_.progress();
    const bool measured = measured_step_ > 0, trains = progress.tokens_per_second() > 0;
    const auto share = [](const Recomputed& r) {
      return r.sum() == 0 ? std::string("none needed") : PercentText(r.hidden, r.sum());
    };
    std::string html = HeadlineFigure("Step", measured ? Duration(measured_step_) : "not measured", StepRemark());
    html += HeadlineFigure("Throughput", trains ? Count(progress.tokens_per_second()) + " tokens/s" : "not measured",
                           absl::StrCat(trains ? "over its last steps; " : "", progress.steps_done(), " of ",
                                        job_.spec().train().steps(), " steps done"));
    html += HeadlineFigure("Recomputation hidden", share(measured ? measured_ : predicted_),
                           absl::StrCat(measured ? "measured; predicted " : "predicted ", share(predicted_)));
    const std::string planned = FormatBytes(Bytes(planned_peak_));
    if (measured_peak_ == 0) {
      html += HeadlineFigure("Peak activations", plan_ == nullptr ? "-" : planned, "planned");
    } else {
      html += HeadlineFigure(
          "Peak activations", FormatBytes(Bytes(measured_peak_)),
          measured_peak_ == planned_peak_ ? "measured; as planned, to the byte" : "measured; planned " + planned);
    }
    if (HasExpertLoad(job_)) {
      html += HeadlineFigure("Rows of the fullest rank", SkewText(progress.expert_skew()),
                             absl::StrCat(plan_ == nullptr ? "" : "planned " + SkewText(plan_->model.moe.skew) + "; ",
                                          WithoutRoomText(progress, "of the rows of experts"), " in the newest step"));
    }
    return html + HeadlineFigure("Restarts", absl::StrCat(job_.restarts()), Lost());
  }

  std::string StepRemark() const {
    const bool measured = measured_step_ > 0;
    return absl::StrCat(
        measured ? absl::StrCat("mean of ", measured_steps_, measured_steps_ == 1 ? " step; " : " steps; ") : "",
        plan_ == nullptr ? "no plan" : absl::StrCat("predicted ", TimeText(plan_->step)),
        measured && plan_ != nullptr ? ", " + Difference(plan_->step.value, measured_step_) : "", Waited());
  }

  std::string Waited() const {
    const CoreWaitOfStep wait = CoreWaitOf(job_);
    if (!wait.matters()) return "";
    const char* const who = wait.predicted_ns > 0 ? "ranks of the job share, which the prediction counts"
                                                  : "others had, which no prediction counts";
    return absl::StrFormat("; %.0f%% of it waiting for a core that %s", 100 * wait.share, who);
  }

  std::string Lost() const {
    int64_t away = 0, again = 0;
    for (const Recovery& recovery : RecoveriesOf(job_, curves_)) {
      if (!recovery.goes_on) return job_.ended_unix_ns() != 0 ? "it did not go on" : "not training again yet";
      away += recovery.away_ns;
      again += recovery.done_again;
    }
    return away == 0
               ? "no time lost to them"
               : absl::StrCat(Duration(away), " without training, ", again, again == 1 ? " step" : " steps", " done again");
  }

  std::string Aside() const {
    std::string text = absl::StrCat("submitted ", Time(job_.submitted_unix_ns()), " UTC");
    if (job_.started_unix_ns() != 0) {
      const int64_t end = job_.ended_unix_ns() != 0 ? job_.ended_unix_ns() : report_.now.value;
      absl::StrAppend(&text, "; waited ", Duration(job_.started_unix_ns() - job_.submitted_unix_ns()), ", then ",
                      Duration(end - job_.started_unix_ns()), job_.ended_unix_ns() != 0 ? " until it ended" : " so far");
    }
    return text;
  }

  std::string Recoveries() const {
    const std::vector<Recovery> all = RecoveriesOf(job_, curves_);
    if (all.empty()) return "";
    Table table{.columns = {"when (UTC)", "what", Right("no training for"), Right("went on from step"), Right("done again"),
                            "why, and how it went on"}};
    for (const Recovery& recovery : all) {
      std::string why = recovery.reason.substr(0, recovery.reason.find('\n'));
      if (!recovery.fault.empty()) absl::StrAppend(&why, "; ", recovery.fault);
      if (recovery.goes_on) absl::StrAppend(&why, " → ", recovery.resumed);
      table.rows.push_back({Time(recovery.time_unix_ns), recovery.kind,
                            recovery.goes_on ? Duration(recovery.away_ns) : Cell("did not go on", Tone::kBad),
                            recovery.from_step < 0 ? "-" : absl::StrCat(recovery.from_step),
                            recovery.goes_on ? absl::StrCat(recovery.done_again) : "-", why});
    }
    return ReportSection("recoveries", "Recoveries", "each with what it cost", ScrollingTable(table, "reasons") + "\n");
  }

  std::string Step() const {
    if (report_.traced == nullptr) {
      return ReportSection("step", "One step, predicted and measured", "",
                           "<p class=\"note\">No step of the present plan has been traced: ranks trace the steps 1, 2, 4, 8 "
                           "and so on of each start.</p>\n");
    }
    const TracedJob& traced = *report_.traced;
    return ReportSection(
        "step", "One step, predicted and measured",
        absl::StrCat("step ", traced.measured.step + 1, " took ", TimeText(traced.measured.end), ", predicted ",
                     TimeText(traced.plan.step), ", ", Difference(traced.plan.step.value, traced.measured.end.value)),
        StepPlot(traced));
  }

  // Returns a table of hidden and exposed recomputation by stage, predicted and measured.
  Table RecomputedTable() const {
    Table table{.columns = {Right("stage"), "", Right("hidden"), Right("exposed"), Right("share hidden")}};
    const auto row = [&](const std::string& stage, const char* what, Recomputed of) {
      table.rows.push_back(
          {stage, what, Duration(of.hidden), Duration(of.exposed), of.sum() == 0 ? "-" : PercentText(of.hidden, of.sum())});
    };
    for (size_t i = 0; i < plan_->stages.size(); ++i) {
      row(absl::StrCat(i), "predicted", {plan_->stages[i].recompute_hidden.value, plan_->stages[i].recompute_exposed.value});
      for (const v1::StageMeasurement& m : job_.measured()) {
        if (m.steps() > 0 && m.stage() == static_cast<int32_t>(i))
          row(absl::StrCat(i), "measured", {m.recompute_hidden_ns(), m.recompute_exposed_ns()});
      }
    }
    return table;
  }

  std::string WhatItCost() const {
    const auto stages = static_cast<int64_t>(plan_->stages.size());
    const Recomputed& of = measured_step_ > 0 ? measured_ : predicted_;
    if (of.sum() == 0) return "Nothing is recomputed: everything that the backward pass reads is stored.";
    return absl::StrCat(
        "Of ", Duration(of.sum() / stages), " of recomputation a stage and step, ", Duration(of.hidden / stages),
        " passed while the device would have waited anyway. What it cost is the rest, ", Duration(of.exposed / stages),
        " a step",
        measured_step_ > 0 ? absl::StrCat(" (", PercentText(of.exposed / stages, measured_step_),
                                          " of it): ", Duration(of.exposed / stages * job_.progress().steps_done()), " over ",
                                          job_.progress().steps_done(), " steps.")
                           : ", as predicted.");
  }

  Table ComparisonTable() const {
    const PolicyComparison& comparison = *report_.comparison;
    Table table{.columns = {"policy", Right("step"), Right("tokens/s"), Right("recomputed"), Right("of that exposed"),
                            Right("peak activations"), ""}};
    const auto row = [&](const std::string& name, const Plan& plan, const std::string& note) {
      const PlanFigures figures = FiguresOf(plan);
      table.rows.push_back({name, TimeText(plan.step), Count(static_cast<double>(figures.tokens_per_second)),
                            TimeText(figures.hidden + figures.exposed), TimeText(figures.exposed), FormatBytes(figures.peak),
                            note});
    };
    row("this plan", *plan_, "");
    if (comparison.unlimited) row("store everything", *comparison.unlimited, "as if memory had no limit");
    for (const ComparedPolicy& policy : comparison.policies) {
      if (policy.plan) {
        row(EnumName(policy.mode), *policy.plan, "");
      } else {
        table.rows.push_back(
            {EnumName(policy.mode), "-", "-", "-", "-", "-",
             policy.lacking
                 ? absl::StrCat("does not fit: ", FormatBytes(policy.lacking->needed - policy.lacking->limit), " are missing")
                 : policy.error});
      }
    }
    return table;
  }

  std::string WhatItSaved() const {
    if (report_.comparison == nullptr || !report_.comparison->unlimited) return "";
    const Bytes stored = FiguresOf(*report_.comparison->unlimited).peak;
    if (stored.value <= planned_peak_) return "";
    return absl::StrCat(" What it saved is memory: ", FormatBytes(Bytes(planned_peak_)),
                        " of activations on the fullest device in place of ", FormatBytes(stored), ", ",
                        PercentText(stored.value - planned_peak_, stored.value), " less.");
  }

  std::string Recomputation() const {
    if (plan_ == nullptr) return "";
    std::string html = absl::StrCat("<p>", HtmlEscaped(WhatItCost()), HtmlEscaped(WhatItSaved()),
                                    "</p>\n<div class=\"columns inner", report_.comparison != nullptr ? " compared" : "",
                                    "\"><div><h3>Per step</h3>", ScrollingTable(RecomputedTable()), "</div>");
    if (report_.comparison != nullptr) {
      absl::StrAppend(&html, "<div><h3>Beside other policies, as predicted in this layout</h3>",
                      ScrollingTable(ComparisonTable()), "</div>");
    }
    absl::StrAppend(&html, "</div>\n<h3>What each layer stores and recomputes</h3>",
                    ScrollingTable(PolicyTable(*plan_), "policies"), "\n");
    return ReportSection("recomputation", "Recomputation", "what was made again, where, what that cost and saved", html);
  }

  absl::StatusOr<std::string> Memory() const {
    if (plan_ == nullptr) return "";
    std::string plots = PlannedMemory(*plan_);
    if (report_.traced != nullptr) {
      LYNX_ASSIGN_OR_RETURN(plots, MemoryPlots(*report_.traced));
    }
    const bool as_planned = measured_peak_ == planned_peak_;
    return ReportSection("memory", "Memory of a device",
                         measured_peak_ == 0 ? "as planned"
                         : as_planned        ? "the measured peak is the planned one"
                                             : "",
                         StagesMemory(*plan_, job_) + plots);
  }

  std::string PlanSection() const {
    if (plan_ == nullptr) return "";
    Table ranks{.columns = {Right("rank"), Right("stage"), "node", Right("device")}};
    for (const v1::RankPlacement& rank : job_.placement()) {
      const bool known = rank.rank() >= 0 && rank.rank() < plan_->layout.ranks();
      ranks.rows.push_back({absl::StrCat(rank.rank()),
                            known ? absl::StrCat(CoordinatesOf(plan_->layout, rank.rank()).stage) : "-", rank.node(),
                            absl::StrCat(rank.device())});
    }
    return ReportSection("plan", "Plan", absl::StrCat("digest ", plan_->digest.substr(0, 12)),
                         absl::StrCat(ScrollingTable(StageTable(*plan_)), "\n",
                                      ranks.rows.empty() ? "" : FoldedTable(ranks, "Where the ranks ran")));
  }

  std::string Events() const {
    Table table{.columns = {"when (UTC)", "state", "event", "reason"}};
    for (const v1::JobEvent& event : job_.events()) {
      table.rows.push_back(
          {Time(event.time_unix_ns()), absl::AsciiStrToLower(StateName(event.state())), event.kind(), event.reason()});
    }
    return ReportSection("events", "Events", absl::StrCat(job_.events_size(), job_.events_size() == 1000 ? ", the newest" : ""),
                         ScrollingTable(table, "reasons") + "\n");
  }

  const JobReport& report_;
  const v1::Job& job_;
  const v1::JobCurves& curves_;
  const Plan* plan_;
  Recomputed predicted_, measured_;  // sums over the stages
  int64_t measured_step_ = 0;        // 0: nothing is measured
  int64_t measured_steps_ = 0;       // number of measured steps
  int64_t measured_peak_ = 0, planned_peak_ = 0;
};

}  // namespace

std::string ReportSection(const std::string& id, const std::string& title, const std::string& aside,
                          const std::string& content) {
  if (content.empty()) return "";
  return absl::StrCat("<section class=\"panel\" id=\"", id, "\" aria-labelledby=\"", id,
                      "-title\">\n<div class=\"head\"><h2 id=\"", id, "-title\">", HtmlEscaped(title), "</h2>",
                      aside.empty() ? "" : absl::StrCat("<p class=\"aside\">", HtmlEscaped(aside), "</p>"), "</div>\n", content,
                      "</section>\n");
}

absl::StatusOr<std::vector<PagePart>> JobReportParts(const JobReport& report) { return Page(report).Parts(); }

absl::StatusOr<std::string> JobReportPage(const JobReport& report) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<PagePart> parts, JobReportParts(report));
  std::string main;
  for (size_t i = 1; i < parts.size(); ++i) main += parts[i].html;
  const std::string footer =
      absl::StrCat("Job ", report.job->id(), ", as it was on ", Time(report.now.value), " UTC; lynxctl ", report.version);
  return PageDocument(
      report.job->spec().name() + " · Lynx job", false,
      absl::StrCat("<a class=\"skip\" href=\"#run-title\">Skip to the run</a>\n<header class=\"top\">\n", parts.front().html,
                   "</header>\n<main>\n", main, "<footer>", HtmlEscaped(footer), "</footer>\n</main>\n"));
}

}  // namespace lynx
