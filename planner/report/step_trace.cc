#include "planner/report/step_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/report/timeline.h"

namespace lynx {
namespace {

constexpr int64_t kTracedEvery = 4096;

absl::Status Unfit(const std::string& what) { return absl::InvalidArgumentError(absl::StrCat("the trace ", what)); }

Nanos EndOf(const std::vector<ActionSpan>& spans) {
  Nanos end;
  for (const ActionSpan& span : spans) end = std::max({end, span.end, span.transfer_end});
  return end;
}

// The time when the sum over all ranks for the gradient norm (NORM) was complete.
Nanos WorldSumOf(const Program& program, const std::vector<ActionSpan>& spans) {
  const auto norm =
      std::find_if(program.begin(), program.end(), [](const Action& action) { return action.kind == ActionKind::kNormStart; });
  LYNX_CHECK(norm != program.end());
  return spans[static_cast<size_t>(norm - program.begin())].transfer_end;
}

void Move(std::vector<ActionSpan>& spans, Nanos by) {
  for (ActionSpan& span : spans) {
    for (Nanos* time : {&span.begin, &span.end, &span.transfer_begin, &span.transfer_end}) *time += by;
  }
}

std::vector<Cell> BreakdownRow(size_t stage, const char* what, const Program& program, const std::vector<ActionSpan>& spans,
                               Nanos step) {
  std::vector<Cell> row = {absl::StrCat(stage), what};
  Nanos rest = step;
  for (const Nanos time : BreakdownOf(TimelineOf(program, spans))) {
    row.emplace_back(FormatDuration(time), time.value == 0 ? Tone::kMuted : Tone::kPlain);
    rest -= time;
  }
  row.emplace_back(FormatDuration(std::max(rest, Nanos(0))));
  return row;
}

}  // namespace

bool IsTracedStep(int64_t nth) { return (nth & (nth - 1)) == 0 || nth % kTracedEvery == 0; }

bool TracesForItsStage(const RankCoordinates& coordinates) {
  return coordinates.tp == 0 && coordinates.dp == 0 && coordinates.cp == 0;
}

std::vector<int64_t> TraceTimes(std::span<const ActionSpan> spans) {
  std::vector<int64_t> times;
  times.reserve(spans.size() * kTimesPerAction);
  Nanos before;
  for (const ActionSpan& span : spans) {
    const bool transfers = span.transfer_end.value != 0;
    times.insert(times.end(), {(span.begin - before).value, (span.end - span.begin).value,
                               transfers ? (span.transfer_begin - span.begin).value : 0,
                               transfers ? (span.transfer_end - span.transfer_begin).value : 0, span.hidden.value});
    before = span.end;
  }
  return times;
}

absl::StatusOr<std::vector<ActionSpan>> SpansOfTrace(const Program& program, std::span<const int64_t> times) {
  if (times.size() != program.size() * kTimesPerAction) {
    return Unfit(absl::StrCat("has ", times.size(), " times, but a program of ", program.size(), " actions needs ",
                              program.size() * kTimesPerAction));
  }
  std::vector<ActionSpan> spans(program.size());
  Nanos before;
  for (size_t i = 0; i < program.size(); ++i) {
    const std::span<const int64_t> own = times.subspan(i * kTimesPerAction, kTimesPerAction);
    if (std::any_of(own.begin(), own.end(), [](int64_t t) { return t < 0 || t > kMaxTracedStep.value; })) {
      return Unfit(absl::StrCat("has a time of action ", i, " that is negative or beyond ", FormatDuration(kMaxTracedStep)));
    }
    const ActionInfo& info = InfoOf(program[i].kind);
    if (info.phase != Phase::kStart && (own[2] != 0 || own[3] != 0)) {
      return Unfit(absl::StrCat("has a transfer for action ", i, ", ", ActionText(program[i]), ", which starts none"));
    }
    if (own[4] > (info.operands == Operands::kOps ? own[1] : 0)) {
      return Unfit(absl::StrCat("hides more of action ", i, ", ", ActionText(program[i]), ", than recomputation takes"));
    }
    ActionSpan& span = spans[i];
    span.begin = before + Nanos(own[0]);
    span.end = span.begin + Nanos(own[1]);
    if (info.phase == Phase::kStart) {
      span.transfer_begin = span.begin + Nanos(own[2]);
      span.transfer_end = span.transfer_begin + Nanos(own[3]);
    }
    span.hidden = Nanos(own[4]);
    before = span.end;
    if (std::max(span.end, span.transfer_end) > kMaxTracedStep) {
      return Unfit(absl::StrCat("is longer than ", FormatDuration(kMaxTracedStep)));
    }
  }
  return spans;
}

MeasuredStep AlignStages(const Plan& plan, int64_t step, std::vector<std::vector<ActionSpan>> stages) {
  LYNX_CHECK(stages.size() == plan.stages.size());
  Nanos latest;
  for (size_t s = 0; s < stages.size(); ++s) latest = std::max(latest, WorldSumOf(plan.stages[s].program, stages[s]));
  MeasuredStep measured{.step = step};
  for (size_t s = 0; s < stages.size(); ++s) {
    Move(stages[s], latest - WorldSumOf(plan.stages[s].program, stages[s]));
    measured.end = std::max(measured.end, EndOf(stages[s]));
  }
  measured.stages = std::move(stages);
  return measured;
}

Table MeasuredStepTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted) {
  Table table{.columns = {Right("stage"), ""}};
  for (int kind = 0; kind < kComputeSpanKinds; ++kind) {
    table.columns.push_back(Right(SpanKindName(static_cast<SpanKind>(kind))));
  }
  table.columns.push_back(Right("other", "Between actions, and before and after the stage's own"));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Program& program = plan.stages[s].program;
    table.rows.push_back(BreakdownRow(s, "measured", program, measured.stages[s], measured.end));
    if (predicted == nullptr) continue;
    table.rows.push_back(BreakdownRow(s, "predicted", program, predicted->stages[s].spans, predicted->step));
  }
  return table;
}

std::string MeasuredTable(const Plan& plan, const MeasuredStep& measured, const Simulation* predicted) {
  return absl::StrCat("step ", measured.step + 1, " took ", FormatDuration(measured.end), ", predicted ",
                      FormatDuration(plan.step), "\n\n", TextOf(MeasuredStepTable(plan, measured, predicted)));
}

}  // namespace lynx
