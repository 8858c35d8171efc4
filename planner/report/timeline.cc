#include "planner/report/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/cost/stage_costs.h"

namespace lynx {
namespace {

// Id and name. The index is the SpanKind.
constexpr std::array<std::pair<const char*, const char*>, kSpanKindCount> kSpanKinds = {{
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
  const std::string name = kNames[static_cast<size_t>(stream)];
  return number == 0 ? name : absl::StrCat(name, " ", number + 1);
}

// Puts the transfers of a stream on lanes. Each transfer gets the first free lane, so transfers that overlap get different
// lanes.
void AddTransfers(Stream stream, std::vector<TimelineSpan> transfers, StageTimeline& timeline) {
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const TimelineSpan& a, const TimelineSpan& b) { return a.begin < b.begin; });
  const size_t first_lane = timeline.lanes.size();
  std::vector<Nanos> free;
  for (TimelineSpan& span : transfers) {
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

// Adds what the action `index` does on the compute lane. A start does something there only in measured steps, where it takes
// time; it has the kind of its wait, with one exception: the start of the gradient norm sums the squares, so its kind is
// optimizer.
void AddComputeSpans(const Action& action, const ActionSpan& span, int32_t index, std::vector<TimelineSpan>& spans) {
  const ActionInfo& info = InfoOf(action.kind);
  const auto add = [&](SpanKind kind, Nanos begin, Nanos end) {
    spans.push_back({.action = index, .kind = kind, .begin = begin, .end = end});
  };
  if (info.phase == Phase::kStart) {
    const SpanKind kind = action.kind == ActionKind::kNormStart ? SpanKind::kOptimizer : WaitKind(info.group);
    if (span.begin < span.end) add(kind, span.begin, span.end);
  } else if (info.phase == Phase::kWait) {
    add(WaitKind(info.group), span.begin, span.end);
  } else if (info.operands != Operands::kOps) {
    add(ComputeKind(action.kind), span.begin, span.end);
  } else {
    const Nanos exposed_from = span.begin + span.hidden;
    if (span.hidden.value > 0) add(SpanKind::kRecomputeHidden, span.begin, exposed_from);
    if (exposed_from < span.end || span.hidden.value == 0) add(SpanKind::kRecomputeExposed, exposed_from, span.end);
  }
}

// The names of a set, such as " (ln1, qkv)".
template <class Enum>
std::string NamesIn(uint64_t set) {
  std::vector<const char*> names;
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    if (Contains(set, static_cast<Enum>(i))) names.push_back(EnumName(static_cast<Enum>(i)));
  }
  return absl::StrCat(" (", absl::StrJoin(names, ", "), ")");
}

}  // namespace

const char* SpanKindName(SpanKind kind) { return kSpanKinds[static_cast<size_t>(kind)].second; }
const char* SpanKindId(SpanKind kind) { return kSpanKinds[static_cast<size_t>(kind)].first; }

StageTimeline TimelineOf(const Program& program, const std::vector<ActionSpan>& times) {
  LYNX_CHECK(program.size() == times.size());
  StageTimeline timeline;
  timeline.lanes.push_back(LaneName(Stream::kCompute, 0));
  std::map<Stream, std::vector<TimelineSpan>> transfers;
  for (size_t i = 0; i < program.size(); ++i) {
    const ActionInfo& info = InfoOf(program[i].kind);
    const auto index = static_cast<int32_t>(i);
    AddComputeSpans(program[i], times[i], index, timeline.spans);
    if (info.phase != Phase::kStart) continue;
    transfers[info.stream].push_back(
        {.action = index, .kind = TransferKind(info.group), .begin = times[i].transfer_begin, .end = times[i].transfer_end});
  }
  for (auto& [stream, spans] : transfers) AddTransfers(stream, std::move(spans), timeline);
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

std::vector<KindTimes> TimesInColumns(const StageTimeline& timeline, bool compute, TimeRange range, int64_t columns) {
  std::vector<KindTimes> times(static_cast<size_t>(columns));
  const int64_t length = (range.end - range.begin).value;
  const auto border = [&](int64_t column) { return static_cast<int64_t>(static_cast<__int128>(length) * column / columns); };
  for (const TimelineSpan& span : timeline.spans) {
    if (compute != (span.lane == 0)) continue;
    const int64_t from = std::max<int64_t>(0, (span.begin - range.begin).value);
    const int64_t to = std::min(length, (span.end - range.begin).value);
    if (from >= to) continue;
    for (auto c = static_cast<int64_t>(static_cast<__int128>(from) * columns / length); c < columns; ++c) {
      if (border(c) >= to) break;
      const int64_t part = std::min(to, border(c + 1)) - std::max(from, border(c));
      if (part > 0) times[static_cast<size_t>(c)][static_cast<size_t>(span.kind)] += part;
    }
  }
  return times;
}

std::string ActionMeaning(const Action& action) {
  const ActionInfo& info = InfoOf(action.kind);
  std::string text = info.phase == Phase::kWait ? "wait for the " : "";
  absl::StrAppend(&text, std::string(info.words));
  if (info.operands == Operands::kOps) text += NamesIn<Op>(action.ops);
  if (info.operands == Operands::kTensors) text += NamesIn<Tensor>(action.tensors);
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

absl::StatusOr<std::vector<Plan>> PlanAtSkews(const ClusterTopology& cluster, const Plan& plan,
                                              const std::vector<double>& skews) {
  std::vector<Plan> plans;
  if (!plan.model.moe.any() || plan.layout.ep == 1) return plans;
  LYNX_ASSIGN_OR_RETURN(const Simulation own, SimulateOn(cluster, plan));
  const double scale = static_cast<double>(plan.step.value) / static_cast<double>(std::max<int64_t>(1, own.step.value));
  const auto scaled = [&](Nanos time) { return Nanos(static_cast<int64_t>(static_cast<double>(time.value) * scale)); };
  for (const double skew : skews) {
    Plan& at = plans.emplace_back(plan);
    at.model.moe.skew = skew;
    LYNX_ASSIGN_OR_RETURN(const Simulation simulation, SimulateOn(cluster, at));
    at.step = scaled(simulation.step);
    for (size_t stage = 0; stage < at.stages.size(); ++stage) {
      at.stages[stage].program.clear();
      at.stages[stage].recompute_hidden = scaled(simulation.stages[stage].recompute_hidden);
      at.stages[stage].recompute_exposed = scaled(simulation.stages[stage].recompute_exposed);
    }
  }
  return plans;
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
