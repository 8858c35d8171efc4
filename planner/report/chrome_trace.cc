#include "planner/report/chrome_trace.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// The format counts time in microseconds and allows fractions.
std::string Micros(Nanos time) { return absl::StrFormat("%d.%03d", time.value / 1000, time.value % 1000); }

// A process of the trace: one stage's step.
struct Track {
  std::string name;
  const Program* program = nullptr;
  std::vector<ActionSpan> times;
  StageTimeline timeline;
  StageMemory memory;
  int32_t compute_lanes = 1;  // number of the timeline's compute lanes: one for each pass that runs side by side with others
};

// The compute lane of an action: its strand.
int32_t StrandOf(WeaveMode weave, const Action& action) {
  const ActionInfo& info = InfoOf(action.kind);
  if (StrandsOf(weave) == 1 || !info.has_microbatch) return 0;
  if (GroupOf(weave) > 1) return action.microbatch % GroupOf(weave);
  return info.part == StepPart::kForward ? 0 : 1;  // kNeighbours mostly weaves a forward with a backward
}

// Gives each strand a compute lane of its own.
void SplitComputeLane(Track& track, WeaveMode weave) {
  track.compute_lanes = StrandsOf(weave);
  if (track.compute_lanes == 1) return;
  std::vector<std::string> names;
  for (int32_t strand = 0; strand < track.compute_lanes; ++strand) {
    names.push_back(absl::StrCat(track.timeline.lanes.front(), ", strand ", strand + 1));
  }
  names.insert(names.end(), track.timeline.lanes.begin() + 1, track.timeline.lanes.end());
  track.timeline.lanes = std::move(names);
  for (TimelineSpan& span : track.timeline.spans) {
    const Action& action = (*track.program)[static_cast<size_t>(span.action)];
    span.lane = span.lane == 0 ? StrandOf(weave, action) : span.lane + track.compute_lanes - 1;
  }
}

absl::StatusOr<Track> TrackOf(const Plan& plan, size_t stage, const std::string& prefix, const std::vector<ActionSpan>& times) {
  const StagePlan& planned = plan.stages[stage];
  Track track{.name = absl::StrCat(prefix, "stage ", stage, " (", LayersText(plan, stage), ")"),
              .program = &planned.program,
              .times = times,
              .timeline = TimelineOf(planned.program, times)};
  SplitComputeLane(track, plan.layout.weave);
  LYNX_ASSIGN_OR_RETURN(track.memory, MemoryOf(planned, plan.ContextOf(static_cast<int32_t>(stage)), times));
  return track;
}

// Returns the time before which at most `limit` spans begin.
Nanos EndOf(const std::vector<Track>& tracks, Nanos step, size_t limit) {
  std::vector<Nanos> begins;
  for (const Track& track : tracks) {
    for (const TimelineSpan& span : track.timeline.spans) begins.push_back(span.begin);
  }
  if (begins.size() <= limit) return step;
  std::nth_element(begins.begin(), begins.begin() + static_cast<ptrdiff_t>(limit), begins.end());
  return begins[limit];
}

// Returns for each wait the index of its start, and -1 for other actions. The fields of the actions show which start belongs to
// a wait.
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
  explicit Writer(Nanos end) : end_(end) {}

  // `facts`: fields of otherData.
  std::string Json(const std::vector<Track>& tracks, const std::string& facts) {
    for (size_t i = 0; i < tracks.size(); ++i) {
      Describe(i, tracks[i]);
      Slices(i, tracks[i]);
      Counters(i, tracks[i].memory);
    }
    return absl::StrCat("{\"displayTimeUnit\":\"ms\",\n\"otherData\":{", facts, ",\"told_until_us\":", JsonString(Micros(end_)),
                        "},\n\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  // Processes and threads are numbered from 1, because viewers treat 0 as the kernel. The number of a thread is unique in the
  // whole trace. `fields` has all fields of the event except the process.
  void Add(size_t process, const std::string& fields) {
    absl::StrAppend(&events_, events_.empty() ? "" : ",\n", "{\"pid\":", process + 1, ",", fields, "}");
  }
  void AddTo(size_t process, int32_t lane, const std::string& fields) {
    Add(process, absl::StrCat("\"tid\":", (static_cast<int64_t>(process) + 1) * 100 + lane, ",\"ph\":", fields));
  }

  void Describe(size_t process, const Track& track) {
    const auto add = [&](const char* what, int32_t lane, const std::string& argument) {
      AddTo(process, lane, absl::StrCat("\"M\",\"name\":\"", what, "\",\"args\":{", argument, "}"));
    };
    add("process_name", 0, absl::StrCat("\"name\":", JsonString(track.name)));
    add("process_sort_index", 0, absl::StrCat("\"sort_index\":", process));
    for (int32_t lane = 0; const std::string& name : track.timeline.lanes) {
      add("thread_name", lane, absl::StrCat("\"name\":", JsonString(name)));
      add("thread_sort_index", lane, absl::StrCat("\"sort_index\":", lane));
      ++lane;
    }
  }

  void Slice(size_t process, const TimelineSpan& span, const std::string& name, const std::string& arguments) {
    AddTo(process, span.lane,
          absl::StrCat("\"X\",\"ts\":", Micros(span.begin), ",\"dur\":", Micros(span.end - span.begin), ",\"cat\":\"",
                       SpanKindId(span.kind), "\",\"name\":", JsonString(name),
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

  void Slices(size_t process, const Track& track) {
    const Program& program = *track.program;
    const std::vector<int32_t> starts = StartsOf(program);
    // The key is the index of the start action. In a measured step, a transfer may begin after its wait.
    std::map<int32_t, TimelineSpan> transfers;
    for (const TimelineSpan& span : track.timeline.spans) {
      if (span.lane >= track.compute_lanes && span.begin < end_) transfers[span.action] = span;
    }
    for (const TimelineSpan& span : track.timeline.spans) {
      if (span.begin >= end_ && span.begin > Nanos(0)) break;
      const Action& action = program[static_cast<size_t>(span.action)];
      const ActionSpan& time = track.times[static_cast<size_t>(span.action)];
      if (InfoOf(action.kind).operands == Operands::kOps) {
        if (span.begin == time.begin) {
          TimelineSpan whole = span;
          whole.end = time.end;
          Slice(process, whole, ActionText(action), Arguments(action, time));
        }
        if (span.begin < span.end) Slice(process, span, SpanKindName(span.kind), "");
        continue;
      }
      const bool waited = InfoOf(action.kind).phase == Phase::kWait;
      if (waited && span.begin == span.end) continue;
      Slice(process, span, ActionText(action), Arguments(action, time));
      if (waited) Flow(process, span, starts[static_cast<size_t>(span.action)], transfers);
    }
  }

  // Adds an arrow from the begin of the transfer to its wait. The arrow ends at the begin of the wait, or at the begin of the
  // transfer if that is later.
  void Flow(size_t process, const TimelineSpan& wait, int32_t start, const std::map<int32_t, TimelineSpan>& transfers) {
    const auto it = transfers.find(start);
    if (it == transfers.end() || it->second.begin == it->second.end) return;
    const std::string fields = absl::StrCat("\"cat\":\"wait\",\"name\":\"transfer\",\"id\":", ++flows_);
    const Nanos begin = it->second.begin, end = std::max(wait.begin, begin);
    AddTo(process, it->second.lane, absl::StrCat("\"s\",\"ts\":", Micros(begin), ",", fields));
    AddTo(process, wait.lane, absl::StrCat("\"f\",\"bp\":\"e\",\"ts\":", Micros(end), ",", fields));
  }

  void Counters(size_t process, const StageMemory& memory) {
    for (const MemoryPoint& point : memory.points) {
      if (point.begin >= end_ && point.begin > Nanos(0)) break;
      std::string values;
      for (const MemoryKind kind :
           {MemoryKind::kStored, MemoryKind::kRecomputed, MemoryKind::kActivationGradients, MemoryKind::kWorkspace}) {
        absl::StrAppend(&values, values.empty() ? "" : ",", JsonString(MemoryKindName(kind)), ":",
                        point.live[static_cast<size_t>(kind)].value);
      }
      Add(process,
          absl::StrCat("\"ph\":\"C\",\"ts\":", Micros(point.begin), ",\"name\":\"arena bytes\",\"args\":{", values, "}"));
    }
  }

  const Nanos end_;
  std::string events_;
  int64_t flows_ = 0;
};

std::string Facts(const std::string& job, const Plan& plan, const std::string& times) {
  return absl::StrCat("\"job\":", JsonString(job), ",\"layout\":", JsonString(LayoutText(plan.layout)),
                      ",\"plan\":", JsonString(plan.digest), ",\"times\":", JsonString(times),
                      ",\"step_us\":", JsonString(Micros(plan.step)));
}

}  // namespace

absl::StatusOr<ChromeTraceText> ChromeTrace(const PredictedStep& step, size_t limit) {
  const Plan& plan = *step.plan;
  std::vector<Track> tracks;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(Track track, TrackOf(plan, i, "", step.simulation.stages[i].spans));
    tracks.push_back(std::move(track));
  }
  const Nanos end = EndOf(tracks, plan.step, limit);
  const std::string facts = Facts(step.request->spec.name, plan, "predicted, of one training step");
  return ChromeTraceText{Writer(end).Json(tracks, facts), end};
}

absl::StatusOr<ChromeTraceText> MeasuredChromeTrace(const std::string& job, const Plan& plan, const MeasuredStep& measured,
                                                    const Simulation* predicted, size_t limit) {
  std::vector<Track> tracks;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(Track track, TrackOf(plan, i, "measured ", measured.stages[i]));
    tracks.push_back(std::move(track));
    if (predicted == nullptr) continue;
    LYNX_ASSIGN_OR_RETURN(track, TrackOf(plan, i, "predicted ", predicted->stages[i].spans));
    tracks.push_back(std::move(track));
  }
  const Nanos end = EndOf(tracks, std::max(measured.end, plan.step), limit);
  const std::string times = absl::StrCat("measured, of step ", measured.step + 1,
                                         predicted == nullptr ? "" : "; below each stage as it was predicted");
  const std::string facts = absl::StrCat(Facts(job, plan, times), ",\"measured_step_us\":", JsonString(Micros(measured.end)));
  return ChromeTraceText{Writer(end).Json(tracks, facts), end};
}

}  // namespace lynx
