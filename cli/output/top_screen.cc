// See top_screen.h.
#include "cli/output/top_screen.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/output/listings.h"
#include "cli/output/narrow.h"
#include "cli/output/output.h"
#include "cli/output/render.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

constexpr size_t kSparks = 24;
// Where the table of jobs is too wide, names of jobs are cut to one of these widths, which depends on the width of the
// terminal.
constexpr size_t kWideName = 24, kNarrow = 80, kNarrowName = 12, kVeryNarrow = 50, kVeryNarrowName = 8;

std::vector<double> Rates(const v1::JobCurves& curves) {
  std::vector<double> rates;
  for (const v1::StepPoint& point : curves.steps()) rates.push_back(point.tokens_per_second());
  return rates;
}

std::vector<double> Losses(const v1::JobCurves& curves) {
  std::vector<double> losses;
  for (const v1::StepPoint& point : curves.steps()) losses.push_back(point.loss());
  return losses;
}

std::string Plural(int64_t count, const char* one) { return absl::StrCat(count, " ", one, count == 1 ? "" : "s"); }

std::string Summary(const TopView& view) {
  int ready = 0, devices = 0, used = 0, running = 0;
  double rate = 0;
  for (const v1::Node& node : view.nodes.nodes()) {
    ready += node.agent_attached() && node.worker_attached() ? 1 : 0;
    devices += node.devices_size();
    used += node.devices_used();
  }
  for (const v1::Job& job : view.jobs) {
    if (job.state() != v1::JOB_STATE_RUNNING) continue;
    ++running;
    rate += job.progress().tokens_per_second();
  }
  const int64_t others = static_cast<int64_t>(view.jobs.size()) - running;
  const char* least = view.more_active ? "at least " : "";
  const int all = view.nodes.nodes_size();
  return absl::StrCat("lynx ", view.nodes.server_version(), " at ", view.server, "\n", Plural(all, "node"),
                      ready == all ? "" : absl::StrCat(" (", all - ready, " not ready)"), ", ", used, " of ",
                      Plural(devices, "device"), " used; ", least, Plural(running, "job"), running == 1 ? " trains" : " train",
                      " at ", Count(rate), " tokens/s, ", view.more_active || view.more_waiting ? "at least " : "", others,
                      others == 1 ? " waits or starts" : " wait or start", "\n");
}

const char* CutMark(const TopStyle& style) { return style.unicode ? "…" : "~"; }

// True if no line of the text is wider than the terminal.
bool Fits(const std::string& text, const TopStyle& style) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  return std::all_of(lines.begin(), lines.end(), [&](const std::string& line) { return ColumnsOf(line) <= style.width; });
}

using Rows = std::vector<std::vector<std::string>>;

// The table of jobs in a terminal that is too narrow for it. The reasons, which are the last column of `rows`, stand below
// their jobs. If the rest is still too wide, names are cut, and then columns go in the order of `least_first`.
std::string NarrowJobsTable(Rows rows, const std::vector<size_t>& least_first, const TopStyle& style) {
  std::vector<std::string> reasons;
  for (auto& row : rows) {
    reasons.push_back(std::move(row.back()));
    row.pop_back();
  }
  std::string table = TableText(rows);
  if (!Fits(table, style)) {
    const size_t name = style.width < kVeryNarrow ? kVeryNarrowName : style.width < kNarrow ? kNarrowName : kWideName;
    for (auto& row : rows) row[1] = CutLine(row[1], name, CutMark(style));
    LeaveOutColumns(rows, style.width, least_first);
    table = TableText(rows);
  }
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  std::string text = lines[0] + "\n";
  for (size_t i = 1; i < rows.size(); ++i) {
    absl::StrAppend(&text, lines[i], "\n");
    if (!reasons[i].empty()) absl::StrAppend(&text, "  ", Wrapped(reasons[i], style.width, 2, 2), "\n");
  }
  return text;
}

std::string JobsTable(const TopView& view, const TopStyle& style) {
  std::vector<size_t> order(view.jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return (view.jobs[a].state() == v1::JOB_STATE_RUNNING) > (view.jobs[b].state() == v1::JOB_STATE_RUNNING);
  });
  Rows rows = {{"JOB", "NAME", "STATE", "DONE", "LOSS", "", "TOK/S", "", "STEP", "ETA", "WHY"}};
  // A column for the load of experts, if a job has some.
  const bool experts = std::any_of(view.jobs.begin(), view.jobs.end(), [](const v1::Job& job) { return HasExpertLoad(job); });
  constexpr size_t kExpertsColumn = 8;
  if (experts) rows[0].insert(rows[0].begin() + kExpertsColumn, "EXPERTS");
  const Glyphs glyphs = style.unicode ? Glyphs::kUnicode : Glyphs::kAscii;
  for (const size_t i : order) {
    const v1::Job& job = view.jobs[i];
    const v1::Progress& p = job.progress();
    const bool trains = job.state() == v1::JOB_STATE_RUNNING && p.steps_done() > 0;
    const v1::JobCurves none;
    const v1::JobCurves& curves = i < view.curves.size() ? view.curves[i] : none;
    const double share =
        static_cast<double>(p.steps_done()) / static_cast<double>(std::max<int64_t>(1, job.spec().train().steps()));
    rows.push_back({job.id(), VisibleLine(job.spec().name()), StateName(job.state()),
                    absl::StrFormat("%d%%", static_cast<int>(100 * std::min(1.0, share))),
                    p.steps_done() > 0 ? absl::StrFormat("%.3f", p.loss()) : "-",
                    Sparkline(Losses(curves), kSparks / 2, LowestBar::kSmallestValue, glyphs),
                    trains ? Count(p.tokens_per_second()) : "-", Sparkline(Rates(curves), kSparks, LowestBar::kZero, glyphs),
                    trains ? FormatDuration(Nanos(p.step_ns())) : "-",
                    trains && p.eta_ns() > 0 ? FormatDuration(Nanos(p.eta_ns())) : "-",
                    trains ? "" : VisibleLine(job.reason().substr(0, job.reason().find('\n')))});
    if (experts)
      rows.back().insert(rows.back().begin() + kExpertsColumn, trains && HasExpertLoad(job) ? ExpertLoadText(job) : "-");
  }
  if (view.jobs.empty()) return "no job trains or waits\n";
  const std::string table = TableText(rows);
  if (Fits(table, style)) return table;
  // The curves go first, and the loss last.
  return NarrowJobsTable(std::move(rows),
                         experts ? std::vector<size_t>{5, 7, 8, 9, 10, 6, 4} : std::vector<size_t>{5, 7, 8, 9, 6, 4}, style);
}

std::string NodesTable(const TopView& view, const TopStyle& style) {
  constexpr size_t kBar = 16;
  Rows rows = {{"NODE", "STATE", "USED", "", "JOBS"}};
  for (const v1::Node& node : view.nodes.nodes()) {
    const int devices = node.devices_size();
    const size_t filled = devices == 0 ? 0 : kBar * static_cast<size_t>(node.devices_used()) / static_cast<size_t>(devices);
    std::string bar;
    for (size_t i = 0; i < kBar; ++i)
      absl::StrAppend(&bar, i < filled ? (style.unicode ? "█" : "#") : (style.unicode ? "░" : "."));
    std::vector<std::string> jobs(node.jobs().begin(), node.jobs().end());
    rows.push_back(
        {node.name(), NodeState(node), absl::StrCat(node.devices_used(), "/", devices), bar, absl::StrJoin(jobs, ",")});
  }
  LeaveOutColumns(rows, style.width, {3});
  return view.nodes.nodes().empty() ? "no nodes have attached yet\n" : TableText(rows);
}

std::string QueuesTable(const TopView& view, const TopStyle& style) {
  // With one queue, which every cluster has, the table would show nothing new.
  if (view.queues.size() < 2) return "";
  const CellText cells(OutputFormat::kTable, view.now);
  const Listing listing = QueueListing(view.queues, cells);
  const std::string table = absl::StrCat("\n", ListingText(listing, OutputFormat::kTable).value_or(""));
  if (Fits(table, style)) return table;
  Rows rows(listing.rows.size() + 1);
  for (size_t column = 0; column < listing.columns.size(); ++column) {
    if (listing.columns[column].in != ColumnIn::kTables) continue;
    rows[0].push_back(listing.columns[column].title);
    for (size_t i = 0; i < listing.rows.size(); ++i) rows[i + 1].push_back(listing.rows[i][column]);
  }
  std::vector<size_t> from_the_right;
  for (size_t column = rows[0].size() - 1; column > 0; --column) from_the_right.push_back(column);
  LeaveOutColumns(rows, style.width, from_the_right);
  return absl::StrCat("\n", TableText(rows));
}

std::string Toned(const std::string& line, const TopStyle& style) {
  if (!style.color) return line;
  const bool title = line.starts_with("JOB ") || line.starts_with("NODE ") || line.starts_with("QUEUE ");
  return title ? absl::StrCat("\033[7m", line, "\033[0m") : line;
}

}  // namespace

std::string Sparkline(const std::vector<double>& values, size_t width, LowestBar lowest, Glyphs glyphs) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kLetters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  std::vector<double> numbers;
  std::copy_if(values.begin(), values.end(), std::back_inserter(numbers), [](double value) { return std::isfinite(value); });
  const size_t bars = std::min(width, numbers.size());
  std::vector<double> means;
  for (size_t i = 0; i < bars; ++i) {
    const size_t begin = i * numbers.size() / bars, end = (i + 1) * numbers.size() / bars;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += numbers[j];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  if (means.empty()) return "";
  const double high = *std::max_element(means.begin(), means.end());
  const double low = lowest == LowestBar::kZero ? std::min(0.0, high) : *std::min_element(means.begin(), means.end());
  std::string text;
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0;
    const auto level = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 7));
    absl::StrAppend(&text, glyphs == Glyphs::kUnicode ? kBlocks[level] : kLetters[level]);
  }
  return text;
}

std::string TopScreen(const TopView& view, const TopStyle& style) {
  const std::string head =
      absl::StrCat(Summary(view), view.problem.empty() ? "" : absl::StrCat(VisibleLine(view.problem), "\n"));
  std::vector<std::string> wrapped = absl::StrSplit(head, '\n');
  for (std::string& line : wrapped) line = Wrapped(line, style.width, 0, 2);
  const std::string whole = absl::StrCat(absl::StrJoin(wrapped, "\n"), "\n", JobsTable(view, style), "\n",
                                         NodesTable(view, style), QueuesTable(view, style));
  std::vector<std::string> lines = absl::StrSplit(whole, '\n');
  lines.pop_back();
  if (style.height > 0 && lines.size() > style.height) {
    const size_t left_out = lines.size() - style.height + 1;
    lines.resize(style.height - 1);
    lines.push_back(absl::StrCat("... ", left_out, " lines more"));
  }
  std::string text;
  for (const std::string& line : lines)
    absl::StrAppend(&text, Toned(CutLine(VisibleLine(line), style.width, CutMark(style)), style), "\n");
  return text;
}

}  // namespace lynx::cli
