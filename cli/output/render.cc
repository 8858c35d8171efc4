#include "cli/output/render.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/narrow.h"
#include "cli/output/output.h"
#include "common/utf8.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"
#include "proto/convert.h"
#include "report/texts.h"

namespace lynx::cli {
namespace {

std::string ClockTime(int64_t unix_ns) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

std::string Percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }

// By how much the measured value is above the predicted one: "+4%"; "" if nothing was predicted.
std::string Difference(int64_t predicted, int64_t measured) {
  if (predicted == 0) return "";
  return absl::StrFormat("%+.0f%%", 100.0 * static_cast<double>(measured - predicted) / static_cast<double>(predicted));
}

std::string Duration(int64_t ns) { return FormatDuration(Nanos(ns)); }

double HiddenShare(int64_t hidden, int64_t exposed) {
  return hidden + exposed == 0 ? 0 : static_cast<double>(hidden) / static_cast<double>(hidden + exposed);
}

// Returns a table of measured values next to predicted values. It has one row for each stage and each quantity that a person
// would compare.
std::string MeasuredTable(const v1::Job& job) {
  const bool any = std::any_of(job.measured().begin(), job.measured().end(), [](const auto& m) { return m.steps() > 0; });
  if (!any) return "no step has been measured yet\n";
  std::vector<std::vector<std::string>> rows = {
      {"STAGE", "", "STEP", "FWD", "BWD+W", "RECOMPUTE HIDDEN", "EXPOSED", "COLLECTIVES", "STALL", "PEAK"}};
  int64_t steps = 0;
  for (const v1::StageMeasurement& m : job.measured()) {
    if (m.stage() < 0 || m.stage() >= job.plan().stages_size()) continue;
    const v1::StagePlan& p = job.plan().stages(m.stage());
    steps = std::max(steps, m.steps());
    rows.push_back({absl::StrCat(m.stage()), "predicted", Duration(job.plan().step_ns()), Duration(p.forward_ns()),
                    Duration(p.backward_ns() + p.weight_ns()), Duration(p.recompute_hidden_ns()),
                    Duration(p.recompute_exposed_ns()), Duration(p.communication_exposed_ns()), Duration(p.stall_ns()),
                    FormatBytes(Bytes(p.arena_bytes()))});
    if (m.steps() == 0) continue;
    rows.push_back({"", "measured", Duration(m.step_ns()), Duration(m.forward_ns()), Duration(m.backward_ns() + m.weight_ns()),
                    Duration(m.recompute_hidden_ns()), Duration(m.recompute_exposed_ns()),
                    Duration(m.tensor_wait_ns() + m.data_parallel_wait_ns() + m.norm_wait_ns()), Duration(m.stall_ns()),
                    FormatBytes(Bytes(m.arena_peak_bytes()))});
  }
  return absl::StrCat("per step, means over ", steps, " steps (collectives, stall: time spent waiting)\n", TableText(rows));
}

std::string CoreWaitText(const CoreWaitOfStep& wait) {
  if (wait.predicted_ns > 0)
    return "ranks of this job share cores, and the predicted step counts that; while one waits for a core, others "
           "wait for it in collectives";
  return "other processes, or the ranks' own transfers, had it; the prediction counts these transfers and no other "
         "process";
}

std::string Outcome(const v1::Job& job) {
  int64_t hidden = 0, exposed = 0, predicted_hidden = 0, predicted_exposed = 0, step = 0, peak = 0, planned = 0;
  for (const v1::StageMeasurement& m : job.measured()) {
    hidden += m.recompute_hidden_ns();
    exposed += m.recompute_exposed_ns();
    step = std::max(step, m.step_ns());
    peak = std::max(peak, m.arena_peak_bytes());
  }
  for (const v1::StagePlan& p : job.plan().stages()) {
    predicted_hidden += p.recompute_hidden_ns();
    predicted_exposed += p.recompute_exposed_ns();
    planned = std::max(planned, p.arena_bytes());
  }
  std::vector<std::vector<std::string>> rows = {{"", "PREDICTED", "MEASURED", ""}};
  rows.push_back({"step time", Duration(job.plan().step_ns()), step ? Duration(step) : "-",
                  step ? Difference(job.plan().step_ns(), step) : ""});
  rows.push_back({"peak activation memory", FormatBytes(Bytes(planned)), peak ? FormatBytes(Bytes(peak)) : "-",
                  peak ? (peak == planned ? "equal" : Difference(planned, peak)) : ""});
  rows.push_back({"recomputation hidden",
                  predicted_hidden + predicted_exposed ? Percent(HiddenShare(predicted_hidden, predicted_exposed)) : "none",
                  hidden + exposed ? Percent(HiddenShare(hidden, exposed)) : (step ? "none" : "-"), ""});
  if (job.plan().model().moe().experts() > 0) {
    rows.push_back(
        {"rows of the fullest rank", SkewText(job.plan().model().moe().skew()),
         HasExpertLoad(job) ? SkewText(job.progress().expert_skew()) : "-",
         HasExpertLoad(job) ? absl::StrCat("of the even share; ", WithoutRoomText(job.progress(), "of all rows")) : ""});
  }
  const CoreWaitOfStep wait = CoreWaitOf(job);
  if (wait.matters()) {
    rows.push_back({"waiting for a core", wait.predicted_ns ? Duration(wait.predicted_ns) : "none",
                    step ? Duration(wait.ns) : "-", step ? absl::StrCat(Percent(wait.share), " of a step") : ""});
  }
  std::string out = TableText(rows);
  if (wait.matters()) absl::StrAppend(&out, "waiting for a core: ", CoreWaitText(wait), "\n");
  const v1::Progress& progress = job.progress();
  if (progress.steps_done() > 0) {
    absl::StrAppend(&out, absl::StrFormat("loss %.4f at the first step, %.4f at step %d (nats per token)\n",
                                          progress.first_loss(), progress.loss(), progress.steps_done()));
  }
  if (progress.validation_step() > 0) {
    absl::StrAppend(
        &out, absl::StrFormat("validation loss %.4f after step %d\n", progress.validation_loss(), progress.validation_step()));
  }
  absl::StrAppend(&out, "checkpoint ", job.checkpoint_path().empty() ? "none yet" : VisibleLine(job.checkpoint_path()), "\n");
  return out;
}

}  // namespace

bool IsTerminal(int fd) {
  const char* kind = std::getenv("TERM");
  return isatty(fd) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

Style StyleOf(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return {IsTerminal(fd) && (no_color == nullptr || *no_color == '\0')};
}

std::string TableText(const std::vector<std::vector<std::string>>& rows) {
  Table table;
  for (const std::string& title : rows.front()) table.columns.emplace_back(title);
  for (size_t i = 1; i < rows.size(); ++i) table.rows.emplace_back(rows[i].begin(), rows[i].end());
  return TextOf(table);
}

std::string Colored(v1::JobState state, const std::string& text, Style style) {
  if (!style.color) return text;
  const char* code = "36";  // cyan, for a job that has not ended
  if (state == v1::JOB_STATE_SUCCEEDED) code = "32";
  if (state == v1::JOB_STATE_FAILED) code = "31";
  if (state == v1::JOB_STATE_CANCELLED) code = "33";
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

std::string JobPage(const v1::Job& job, Style style, Nanos now) {
  std::string out =
      absl::StrCat("job ", job.id(), "  ", job.spec().name(), "  ", Colored(job.state(), StateName(job.state()), style), "\n");
  if (!job.reason().empty()) absl::StrAppend(&out, VisibleText(job.reason()), "\n");
  if (job.expected_start_unix_ns() > now.value) {
    absl::StrAppend(&out, "expected to begin in ", Duration(job.expected_start_unix_ns() - now.value), "\n");
  }
  absl::StrAppend(&out, "submitted ", Age(job.submitted_unix_ns(), now), " ago");
  if (!job.owner().empty() && job.owner() != "local") absl::StrAppend(&out, " by ", job.owner());
  if (job.started_unix_ns()) {
    const int64_t end = job.ended_unix_ns() ? job.ended_unix_ns() : now.value;
    absl::StrAppend(&out, ", trained for ", Duration(end - job.started_unix_ns()));
  }
  if (job.restarts()) absl::StrAppend(&out, ", ", job.restarts(), job.restarts() == 1 ? " restart" : " restarts");
  if (job.preemptions()) absl::StrAppend(&out, ", gave way ", job.preemptions(), job.preemptions() == 1 ? " time" : " times");
  absl::StrAppend(&out, "\n");
  if (job.progress().steps_done() > 0) absl::StrAppend(&out, ProgressLine(job, 110), "\n");
  if (job.has_plan()) {
    auto plan = FromProto(job.plan(), PlanPrograms::kLeftOut);
    absl::StrAppend(&out, "\nPLAN\n", plan.ok() ? PlanTable(*plan) : std::string(plan.status().message()) + "\n");
    if (!job.placement().empty()) {
      absl::StrAppend(&out, job.device_kind() == v1::DEVICE_KIND_CUDA ? "ranks on GPUs:" : "ranks on nodes:");
      for (const v1::RankPlacement& p : job.placement()) absl::StrAppend(&out, " ", p.rank(), "=", p.node(), ":", p.device());
      absl::StrAppend(&out, "\n");
    }
    absl::StrAppend(&out, "\nPREDICTED AND MEASURED\n", Outcome(job), "\n", MeasuredTable(job));
  }
  if (!job.events().empty()) {
    std::vector<std::vector<std::string>> rows = {{"TIME", "STATE", "EVENT", "REASON"}};
    for (const v1::JobEvent& e : job.events())
      rows.push_back({ClockTime(e.time_unix_ns()), StateName(e.state()), e.kind(), e.reason()});
    absl::StrAppend(&out, "\nEVENTS\n", TableText(rows));
  }
  return out;
}

std::string ProgressLine(const v1::Job& job, int width) {
  const v1::Progress& p = job.progress();
  const int64_t total = std::max<int64_t>(1, job.spec().train().steps());
  const double share = std::min(1.0, static_cast<double>(p.steps_done()) / static_cast<double>(total));
  const std::string head = absl::StrCat("step ", p.steps_done(), "/", total, " ");
  const std::string percent = absl::StrFormat(" %3.0f%%", 100 * share);
  const std::string loss = p.steps_done() > 0 ? absl::StrFormat("  loss %.3f", p.loss()) : "";
  std::string validation = p.validation_step() > 0 ? absl::StrFormat("  validation %.3f", p.validation_loss()) : "";
  std::string rate = p.tokens_per_second() > 0 ? absl::StrCat("  ", Count(p.tokens_per_second()), " tok/s") : "";
  std::string eta = p.eta_ns() > 0 && p.steps_done() < total ? absl::StrCat("  ETA ", Duration(p.eta_ns())) : "";
  const auto columns = static_cast<size_t>(std::max(0, width));
  // In a narrow terminal whole values are left out, because a part of a number is a wrong number.
  for (std::string* part : {&validation, &rate, &eta}) {
    if (head.size() + percent.size() + loss.size() + validation.size() + rate.size() + eta.size() > columns) part->clear();
  }
  const std::string tail = absl::StrCat(percent, loss, validation, rate, eta);
  const int bar = std::clamp(width - static_cast<int>(head.size() + tail.size()) - 2, 0, 40);
  if (bar < 5) {
    for (const std::string& line : {head + tail, head + percent, std::string(absl::StripAsciiWhitespace(percent))}) {
      if (line.size() <= columns) return line;
    }
    return "";
  }
  const int filled = static_cast<int>(std::lround(share * bar));
  std::string text(static_cast<size_t>(bar), ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled < bar) text[static_cast<size_t>(filled)] = '>';
  return absl::StrCat(head, "[", text, "]", tail);
}

std::string EventLine(const v1::JobEvent& event, const std::string& time, size_t width, Style style) {
  const std::string state = absl::StrFormat("%-9s", StateName(event.state()));
  const std::string state_shown = Colored(event.state(), state, style);
  const std::string& kind = event.kind();
  const std::string reason = VisibleLine(event.reason());
  const std::string padded_kind = absl::StrFormat("%-16s", kind);
  if (!reason.empty() && ColumnsOf(absl::StrCat(time, "  ", state, "  ", padded_kind, "  ", reason)) <= width) {
    return absl::StrCat(time, "  ", state_shown, "  ", padded_kind, "  ", reason, "\n");
  }
  const bool dated = ColumnsOf(absl::StrCat(time, "  ", state, "  ", kind)) <= width;
  const std::string head = absl::StrCat(dated ? time : time.substr(time.rfind(' ') + 1), "  ", state_shown, "  ", kind, "\n");
  if (reason.empty()) return head;
  constexpr size_t kIndent = 4;
  return absl::StrCat(head, std::string(kIndent, ' '), Wrapped(reason, width, kIndent, kIndent), "\n");
}

}  // namespace lynx::cli
