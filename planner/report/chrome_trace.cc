#include "planner/report/chrome_trace.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "planner/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// The format counts in microseconds; fractions are allowed.
std::string Micros(Nanos time) { return absl::StrFormat("%d.%03d", time.value / 1000, time.value % 1000); }

// Where all spans that begin earlier fit into the limit.
Nanos EndOf(const std::vector<StageTimeline>& stages, Nanos step, size_t limit) {
  std::vector<Nanos> begins;
  for (const StageTimeline& stage : stages) {
    for (const TimelineSpan& span : stage.spans) begins.push_back(span.begin);
  }
  if (begins.size() <= limit) return step;
  std::nth_element(begins.begin(), begins.begin() + static_cast<ptrdiff_t>(limit), begins.end());
  return begins[limit];
}

// The start that each wait waits for, by what both say of themselves; -1 for other actions.
std::vector<int32_t> StartsOf(const Program& program) {
  std::vector<int32_t> starts(program.size(), -1);
  std::map<std::string, int32_t> open;
  for (size_t i = 0; i < program.size(); ++i) {
    const ActionInfo& info = InfoOf(program[i].kind);
    if (info.phase == Phase::kStart) open[ActionText(program[i])] = static_cast<int32_t>(i);
    if (info.phase != Phase::kWait) continue;
    Action start = program[i];
    start.kind = info.counterpart;
    if (const auto it = open.find(ActionText(start)); it != open.end()) starts[i] = it->second;
  }
  return starts;
}

class Writer {
 public:
  Writer(const PredictedStep& step, Nanos end) : step_(step), end_(end) {}

  std::string Json(const std::vector<StageTimeline>& timelines, const std::vector<StageMemory>& memories) {
    for (size_t i = 0; i < timelines.size(); ++i) {
      Describe(i, timelines[i]);
      Slices(i, timelines[i]);
      Counters(i, memories[i]);
    }
    const Plan& plan = *step_.plan;
    return absl::StrCat(
        "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"job\":", JsonString(step_.request->spec.name),
        ",\"layout\":", JsonString(LayoutText(plan.layout)), ",\"plan\":", JsonString(plan.digest),
        ",\"times\":", JsonString("predicted, of one training step"), ",\"step_us\":", JsonString(Micros(plan.step)),
        ",\"told_until_us\":", JsonString(Micros(end_)), "},\n\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  // Processes and threads count from 1, because viewers take 0 for the kernel's; a thread's number is its own in the
  // whole trace. `fields`: all but the process.
  void Add(size_t stage, const std::string& fields) {
    absl::StrAppend(&events_, events_.empty() ? "" : ",\n", "{\"pid\":", stage + 1, ",", fields, "}");
  }

  template <class Lane>
  static size_t Thread(size_t stage, Lane lane) {
    return (stage + 1) * 100 + static_cast<size_t>(lane);
  }

  void Describe(size_t stage, const StageTimeline& timeline) {
    const std::string name = absl::StrCat("stage ", stage, " (", LayersText(*step_.plan, stage), ")");
    const auto add = [&](const char* what, size_t lane, const std::string& argument) {
      Add(stage, absl::StrCat("\"tid\":", Thread(stage, lane), ",\"ph\":\"M\",\"name\":\"", what, "\",\"args\":{",
                              argument, "}"));
    };
    add("process_name", 0, absl::StrCat("\"name\":", JsonString(name)));
    add("process_sort_index", 0, absl::StrCat("\"sort_index\":", stage));
    for (size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
      add("thread_name", lane, absl::StrCat("\"name\":", JsonString(timeline.lanes[lane])));
      add("thread_sort_index", lane, absl::StrCat("\"sort_index\":", lane));
    }
  }

  void Slice(size_t stage, const TimelineSpan& span, const std::string& name, const std::string& arguments) {
    Add(stage, absl::StrCat("\"tid\":", Thread(stage, span.lane), ",\"ph\":\"X\",\"ts\":", Micros(span.begin),
                            ",\"dur\":", Micros(span.end - span.begin), ",\"cat\":\"", SpanKindId(span.kind),
                            "\",\"name\":", JsonString(name),
                            arguments.empty() ? "" : absl::StrCat(",\"args\":{", arguments, "}")));
  }

  static std::string Arguments(const Action& action, const ActionSpan& span) {
    const ActionInfo& info = InfoOf(action.kind);
    std::string text = absl::StrCat("\"what\":", JsonString(ActionMeaning(action)));
    if (info.has_microbatch) absl::StrAppend(&text, ",\"microbatch\":", action.microbatch);
    if (info.has_layer && action.layer >= 0) absl::StrAppend(&text, ",\"layer\":", action.layer);
    if (info.operands == Operands::kOps) absl::StrAppend(&text, ",\"hidden_us\":", Micros(span.hidden));
    return text;
  }

  void Slices(size_t stage, const StageTimeline& timeline) {
    const Program& program = step_.plan->stages[stage].program;
    const std::vector<ActionSpan>& times = step_.simulation.stages[stage].spans;
    const std::vector<int32_t> starts = StartsOf(program);
    std::map<int32_t, TimelineSpan> transfers;  // by start action, not waited for yet
    int32_t last = -1;
    for (const TimelineSpan& span : timeline.spans) {
      if (span.begin >= end_ && span.begin > Nanos(0)) break;
      const Action& action = program[static_cast<size_t>(span.action)];
      const ActionSpan& time = times[static_cast<size_t>(span.action)];
      if (InfoOf(action.kind).operands == Operands::kOps) {
        if (span.action != last) {
          TimelineSpan whole = span;
          whole.end = time.end;
          Slice(stage, whole, ActionText(action), Arguments(action, time));
        }
        last = span.action;
        if (span.begin < span.end) Slice(stage, span, SpanKindName(span.kind), "");
        continue;
      }
      const bool waited = InfoOf(action.kind).phase == Phase::kWait;
      if (waited && span.begin == span.end) continue;
      Slice(stage, span, ActionText(action), Arguments(action, time));
      if (span.lane != 0) transfers[span.action] = span;
      if (waited) Flow(stage, span, starts[static_cast<size_t>(span.action)], transfers);
    }
  }

  // An arrow from the begin of the transfer to the end of the wait for it.
  void Flow(size_t stage, const TimelineSpan& wait, int32_t start, const std::map<int32_t, TimelineSpan>& transfers) {
    const auto it = transfers.find(start);
    if (it == transfers.end() || it->second.begin == it->second.end) return;
    const std::string fields = absl::StrCat("\"cat\":\"wait\",\"name\":\"transfer\",\"id\":", ++flows_);
    Add(stage, absl::StrCat("\"tid\":", Thread(stage, it->second.lane),
                            ",\"ph\":\"s\",\"ts\":", Micros(it->second.begin), ",", fields));
    Add(stage, absl::StrCat("\"tid\":", Thread(stage, wait.lane), ",\"ph\":\"f\",\"bp\":\"e\",\"ts\":",
                            Micros(std::max(wait.begin, it->second.begin)), ",", fields));
  }

  void Counters(size_t stage, const StageMemory& memory) {
    for (const MemoryPoint& point : memory.points) {
      if (point.begin >= end_ && point.begin > Nanos(0)) break;
      std::string values;
      for (const MemoryKind kind :
           {MemoryKind::kStored, MemoryKind::kRecomputed, MemoryKind::kActivationGradients, MemoryKind::kWorkspace}) {
        absl::StrAppend(&values, values.empty() ? "" : ",", JsonString(MemoryKindName(kind)), ":",
                        point.live[static_cast<size_t>(kind)].value);
      }
      Add(stage, absl::StrCat("\"ph\":\"C\",\"ts\":", Micros(point.begin), ",\"name\":\"arena bytes\",\"args\":{",
                              values, "}"));
    }
  }

  const PredictedStep& step_;
  const Nanos end_;
  std::string events_;
  int64_t flows_ = 0;
};

}  // namespace

absl::StatusOr<ChromeTraceText> ChromeTrace(const PredictedStep& step, size_t limit) {
  const Plan& plan = *step.plan;
  std::vector<StageTimeline> timelines;
  std::vector<StageMemory> memories;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StageTimes& times = step.simulation.stages[i];
    timelines.push_back(TimelineOf(plan.stages[i].program, times));
    LYNX_ASSIGN_OR_RETURN(StageMemory memory,
                          MemoryOf(plan.stages[i], plan.ContextOf(static_cast<int32_t>(i)), times));
    memories.push_back(std::move(memory));
  }
  const Nanos end = EndOf(timelines, plan.step, limit);
  return ChromeTraceText{Writer(step, end).Json(timelines, memories), end};
}

}  // namespace lynx
