#include "planner/report/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/cost/stage_costs.h"

namespace lynx {
namespace {

struct KindNames {
  const char *id, *name;
};

// The index is the SpanKind.
constexpr std::array<KindNames, kSpanKindCount> kSpanKinds = {{
    {"forward", "forward"},
    {"backward", "backward"},
    {"weight", "weight gradient"},
    {"hidden", "hidden recomputation"},
    {"exposed", "exposed recomputation"},
    {"optimizer", "optimizer"},
    {"wait", "waiting for a collective"},
    {"copywait", "waiting for a copy"},
    {"stall", "waiting for a stage"},
    {"tensor", "transfer inside a layer"},
    {"boundary", "transfer between stages"},
    {"data", "data-parallel transfer"},
    {"copy", "copy to or from the host"},
}};

SpanKind ComputeKind(ActionKind kind) {
  switch (kind) {
    case ActionKind::kBackward: return SpanKind::kBackward;
    case ActionKind::kWeight: return SpanKind::kWeight;
    case ActionKind::kOptimizer: return SpanKind::kOptimizer;
    default: return SpanKind::kForward;
  }
}

bool BetweenStages(Group group) { return group == Group::kNextStage || group == Group::kPreviousStage; }

SpanKind WaitKind(Group group) {
  if (BetweenStages(group)) return SpanKind::kStall;
  return group == Group::kHost ? SpanKind::kCopyWait : SpanKind::kCommunicationWait;
}

SpanKind TransferKind(Group group) {
  if (BetweenStages(group)) return SpanKind::kBoundaryTransfer;
  if (group == Group::kHost) return SpanKind::kCopyTransfer;
  return group == Group::kTensor || group == Group::kExpert ? SpanKind::kTensorTransfer : SpanKind::kDataTransfer;
}

std::string LaneName(Stream stream, size_t number) {
  constexpr std::array<const char*, 3> kNames = {"compute", "communication", "copy"};
  const auto index = static_cast<size_t>(stream);
  const std::string name(index < kNames.size() ? kNames[index] : "stream");
  return number == 0 ? name : absl::StrCat(name, " ", number + 1);
}

// Puts transfers on lanes. Each transfer gets the first free lane, so transfers that overlap get different lanes.
class TransferLanes {
 public:
  void Add(Stream stream, TimelineSpan span) { spans_[stream].push_back(span); }

  void MoveInto(StageTimeline& timeline) {
    for (auto& [stream, spans] : spans_) {
      std::stable_sort(spans.begin(), spans.end(),
                       [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin < b.begin; });
      const size_t first_lane = timeline.lanes.size();
      std::vector<Nanos> free;
      for (TimelineSpan& span : spans) {
        size_t lane = 0;
        while (lane < free.size() && free[lane] > span.begin) ++lane;
        if (lane == free.size()) {
          timeline.lanes.push_back(LaneName(stream, lane));
          free.emplace_back();
        }
        free[lane] = span.end;
        span.lane = static_cast<int32_t>(first_lane + lane);
        timeline.spans.push_back(span);
      }
    }
  }

 private:
  std::map<Stream, std::vector<TimelineSpan>> spans_;
};

// Adds the spans of waits and of actions without a transfer. These spans are on lane 0.
void AddComputeSpans(const Action& action, const ActionSpan& span, TimelineSpan base, std::vector<TimelineSpan>& spans) {
  const ActionInfo& info = InfoOf(action.kind);
  base.begin = span.begin;
  base.end = span.end;
  if (info.phase == Phase::kWait) {
    base.kind = WaitKind(info.group);
    spans.push_back(base);
    return;
  }
  if (info.operands != Operands::kOps) {
    base.kind = ComputeKind(action.kind);
    spans.push_back(base);
    return;
  }
  const Nanos exposed_from = span.begin + span.hidden;
  if (span.hidden.value > 0) {
    base.kind = SpanKind::kRecomputeHidden;
    base.end = exposed_from;
    spans.push_back(base);
  }
  if (exposed_from < span.end || span.hidden.value == 0) {
    base.kind = SpanKind::kRecomputeExposed;
    base.begin = exposed_from;
    base.end = span.end;
    spans.push_back(base);
  }
}

// Returns the span of a start action itself. Only in measured steps does a start take time. The span has the kind of the
// start's wait, with one exception: the start of the gradient norm sums the squares, so its kind is optimizer.
TimelineSpan StartSpan(const Action& action, const ActionSpan& span, TimelineSpan base) {
  base.kind = action.kind == ActionKind::kNormStart ? SpanKind::kOptimizer : WaitKind(InfoOf(action.kind).group);
  base.begin = span.begin;
  base.end = span.end;
  return base;
}

template <class Enum>
void AppendNames(uint64_t set, std::string& text) {
  const char* separator = " (";
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    if (!Contains(set, static_cast<Enum>(i))) continue;
    absl::StrAppend(&text, separator, EnumName(static_cast<Enum>(i)));
    separator = ", ";
  }
  text += ")";
}

}  // namespace

const char* SpanKindName(SpanKind kind) { return kSpanKinds[static_cast<size_t>(kind)].name; }
const char* SpanKindId(SpanKind kind) { return kSpanKinds[static_cast<size_t>(kind)].id; }

StageTimeline TimelineOf(const Program& program, const StageTimes& times) {
  LYNX_CHECK(program.size() == times.spans.size());
  StageTimeline timeline;
  timeline.lanes.push_back(LaneName(Stream::kCompute, 0));
  TransferLanes transfers;
  for (size_t i = 0; i < program.size(); ++i) {
    const ActionInfo& info = InfoOf(program[i].kind);
    const ActionSpan& span = times.spans[i];
    TimelineSpan base{.action = static_cast<int32_t>(i)};
    if (info.phase != Phase::kStart) {
      AddComputeSpans(program[i], span, base, timeline.spans);
      continue;
    }
    if (span.begin < span.end) timeline.spans.push_back(StartSpan(program[i], span, base));
    base.kind = TransferKind(info.group);
    base.begin = span.transfer_begin;
    base.end = span.transfer_end;
    transfers.Add(info.stream, base);
  }
  transfers.MoveInto(timeline);
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return std::pair(a.begin, a.lane) < std::pair(b.begin, b.lane);
  });
  return timeline;
}

Breakdown BreakdownOf(const StageTimeline& timeline) {
  Breakdown breakdown;
  for (const TimelineSpan& span : timeline.spans) {
    if (span.lane == 0) breakdown[static_cast<size_t>(span.kind)] += span.end - span.begin;
  }
  return breakdown;
}

std::string ActionMeaning(const Action& action) {
  const ActionInfo& info = InfoOf(action.kind);
  std::string text = info.phase == Phase::kWait ? "wait for the " : "";
  absl::StrAppend(&text, std::string(info.words));
  if (info.operands == Operands::kOps) AppendNames<Op>(action.ops, text);
  if (info.operands == Operands::kTensors) AppendNames<Tensor>(action.tensors, text);
  if (info.has_layer) {
    absl::StrAppend(&text, action.layer == kEmbeddingLayer ? ", embedding"
                           : action.layer == kHeadLayer    ? ", head"
                                                           : absl::StrCat(", layer ", action.layer));
  }
  if (info.has_segment) absl::StrAppend(&text, ", segment ", EnumName(action.segment));
  if (info.has_microbatch) absl::StrAppend(&text, ", microbatch ", action.microbatch);
  return text;
}

absl::StatusOr<Simulation> SimulateOn(const ClusterTopology& cluster, const Plan& plan) {
  const StageCosts costs(cluster, plan.model, plan.layout, plan.micro_batch);
  std::vector<Program> programs;
  std::vector<StageContext> contexts;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    programs.push_back(plan.stages[stage].program);
    contexts.push_back(plan.ContextOf(static_cast<int32_t>(stage)));
  }
  return Simulate(programs, contexts, costs);
}

absl::StatusOr<PredictedStep> PredictStep(const PlanRequest& request, const Plan& plan) {
  PredictedStep step{.request = &request, .plan = &plan};
  LYNX_ASSIGN_OR_RETURN(step.simulation, SimulateOn(request.cluster, plan));
  if (step.simulation.step != plan.step) {
    return absl::FailedPreconditionError(absl::StrCat("the plan predicts a step of ", plan.step.value,
                                                      " ns, but with this profile it takes ", step.simulation.step.value,
                                                      " ns: give the profile and the cluster that the plan was made for"));
  }
  return step;
}

std::vector<TimeRange> DetailRanges(const std::vector<StageTimeline>& stages, Nanos step, size_t budget) {
  std::vector<Nanos> begins, ends;
  for (const StageTimeline& stage : stages) {
    for (const TimelineSpan& span : stage.spans) {
      begins.push_back(span.begin);
      ends.push_back(span.end);
    }
  }
  if (begins.size() <= budget) return {{Nanos(0), step}};
  // `head` spans begin before head_end, or fewer if several spans begin at the same time. In the same way, about `tail` spans
  // end after tail_begin.
  const size_t head = budget * 2 / 3, tail = budget - head;
  std::nth_element(begins.begin(), begins.begin() + static_cast<ptrdiff_t>(head), begins.end());
  const Nanos head_end = begins[head];
  std::nth_element(ends.begin(), ends.end() - static_cast<ptrdiff_t>(tail) - 1, ends.end());
  const Nanos tail_begin = ends[ends.size() - tail - 1];
  return {{Nanos(0), head_end}, {std::max(head_end, tail_begin), step}};
}

}  // namespace lynx
