#include "planner/report/page_data.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/page_parts.h"
#include "planner/report/plan_table.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// Stands for the number of the microbatch in a text that all microbatches share. It has more digits than the number of any real
// microbatch, so WithoutMicrobatch can find it in the text.
constexpr int32_t kAnyMicrobatch = 987'654'321;

std::string WithoutMicrobatch(std::string text) {
  static const std::string* const kNumber = new std::string(absl::StrCat(kAnyMicrobatch));
  const size_t at = text.find(*kNumber);
  return at == std::string::npos ? text : text.replace(at, kNumber->size(), "#");
}

// A JSON list: `json` gives the text of each value.
template <class Values, class Json>
std::string List(const Values& values, const Json& json) {
  return absl::StrCat("[", absl::StrJoin(values, ",", [&](std::string* out, const auto& value) { *out += json(value); }), "]");
}

// The texts of actions. Each text is stored once.
class Texts {
 public:
  size_t IndexOf(Action action) {
    if (InfoOf(action.kind).has_microbatch) action.microbatch = kAnyMicrobatch;
    std::string text = WithoutMicrobatch(ActionText(action));
    const auto [it, fresh] = index_.try_emplace(text, rows_.size());
    if (fresh) rows_.push_back({std::move(text), WithoutMicrobatch(ActionMeaning(action))});
    return it->second;
  }

  std::string Json() const {
    return List(rows_,
                [](const auto& row) { return absl::StrCat("[", JsonString(row.first), ",", JsonString(row.second), "]"); });
  }

 private:
  std::map<std::string, size_t> index_;
  std::vector<std::pair<std::string, std::string>> rows_;
};

template <class Kind>
std::string KindsJson(int count, const char* (*id)(Kind), const char* (*name)(Kind)) {
  std::vector<Kind> kinds;
  for (int i = 0; i < count; ++i) kinds.push_back(static_cast<Kind>(i));
  return List(kinds, [&](Kind kind) {
    return absl::StrCat("{\"id\":", JsonString(id(kind)), ",\"name\":", JsonString(name(kind)), "}");
  });
}

bool Detailed(const TimelineSpan& span, const std::vector<TimeRange>& detail) {
  return detail.size() == 1 || span.begin < detail.front().end || span.end > detail.back().begin;
}

class Writer {
 public:
  Writer(const PredictedStep& step, const std::vector<StageFacts>& stages, const std::vector<TimeRange>& detail,
         const PageLimits& limits)
      : step_(step), stages_(stages), detail_(detail), limits_(limits) {
    while (step_.simulation.step.value / tick_ > kMaxTicks) tick_ *= 10;
  }

  std::string Json() {
    std::string stages;
    for (size_t i = 0; i < stages_.size(); ++i) absl::StrAppend(&stages, i ? ",\n" : "", Stage(i));
    const WeaveMode weave = step_.plan->layout.weave;
    const std::string detail = List(
        detail_, [&](const TimeRange& range) { return absl::StrCat("[", Ticks(range.begin), ",", Ticks(range.end), "]"); });
    return absl::StrCat("{\"tick\":", tick_, ",\"step\":", Ticks(step_.simulation.step),
                        ",\"fullest\":", FullestStage(*step_.plan), ",\"strands\":", StrandsOf(weave),
                        ",\"strandsAreMicrobatches\":", GroupOf(weave) > 1 ? "true" : "false",
                        ",\n\"kinds\":", KindsJson(kSpanKindCount, SpanKindId, SpanKindName),
                        ",\n\"memoryKinds\":", KindsJson(kMemoryKindCount, MemoryKindId, MemoryKindName),
                        ",\n\"detail\":", detail, ",\n\"texts\":", texts_.Json(), ",\n\"stages\":[", stages, "]}");
  }

 private:
  int64_t Ticks(Nanos time) const { return time.value / tick_; }

  std::string Stage(size_t index) {
    const StageFacts& facts = stages_[index];
    const StagePlan& part = step_.plan->stages[index];
    return absl::StrCat("{\"name\":", JsonString(absl::StrCat("stage ", index)),
                        ",\"layers\":", JsonString(LayersText(*step_.plan, index)),
                        ",\"lanes\":", List(facts.timeline.lanes, JsonString), ",\n\"spans\":[",
                        Spans(facts.timeline, part.program), "],\n\"shares\":", JsonString(Shares(facts.timeline)),
                        ",\n\"waterfall\":", JsonString(Waterfall(AmountsOf(facts.memory.peak), facts.limit)),
                        ",\"arena\":", part.arena.value, ",\"livePeak\":", part.live_peak.value,
                        ",\"arenaLimit\":", step_.plan->activation_limit.value, ",\n\"memory\":", Memory(facts.memory), "}");
  }

  std::string Spans(const StageTimeline& timeline, const Program& program) {
    std::string json;
    int64_t before = 0;
    for (const TimelineSpan& span : timeline.spans) {
      if (!Detailed(span, detail_)) continue;
      const Action& action = program[static_cast<size_t>(span.action)];
      const int64_t begin = Ticks(span.begin);
      absl::StrAppend(&json, json.empty() ? "" : ",", span.lane, ",", static_cast<int>(span.kind), ",", texts_.IndexOf(action),
                      ",", InfoOf(action.kind).has_microbatch ? action.microbatch : -1, ",");
      absl::StrAppend(&json, begin - before, ",", Ticks(span.end) - begin);
      before = begin;
    }
    return json;
  }

  // Encodes the time between the ranges that are shown in detail. Each interval has the kinds of spans on the compute lane, and
  // the share of time of each kind in thousandths. One digit stands for the kind and two digits for the share, in base 36.
  std::string Shares(const StageTimeline& timeline) const {
    if (detail_.size() == 1) return "";
    const TimeRange between{detail_.front().end, detail_.back().begin};
    const int64_t length = (between.end - between.begin).value;
    if (length <= 0) return "";
    // The time is divided into `columns` intervals: half as many as there are microbatches, but at most `most`, and always at
    // least 20. In an interval shorter than two microbatches, the shares would only show which passes happen to be in it.
    const auto most = static_cast<int64_t>(limits_.share_columns / stages_.size());
    const int64_t columns = std::max<int64_t>(20, std::min<int64_t>(most, step_.plan->microbatches / 2));
    const int64_t interval = std::max<int64_t>(1, length / columns);
    constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    return absl::StrJoin(TimesInColumns(timeline, true, between, columns), ";", [&](std::string* text, const KindTimes& times) {
      for (size_t kind = 0; kind < times.size(); ++kind) {
        const int64_t share = std::min<int64_t>(1000, (times[kind] * 1000 + interval / 2) / interval);
        if (share > 0) *text += {kDigits[kind], kDigits[share / 36], kDigits[share % 36]};
      }
    });
  }

  std::string Memory(const StageMemory& memory) const {
    const size_t limit = std::max<size_t>(200, limits_.memory_points / stages_.size());
    const std::vector<MemoryPoint> points = Thinned(memory.points, step_.simulation.step, limit);
    LiveBytes most;
    for (const MemoryPoint& point : points) {
      for (size_t k = 0; k < most.size(); ++k) most[k] = std::max(most[k], point.live[k]);
    }
    std::vector<size_t> kinds;
    int64_t unit = 1;  // bytes per unit: a power of two with which no number has more than six digits
    for (size_t k = 0; k < most.size(); ++k) {
      if (most[k].value > 0) kinds.push_back(k);
      while (most[k].value / unit > 999'999) unit *= 2;
    }
    std::vector<int64_t> times, values;
    int64_t before = 0;
    for (const MemoryPoint& point : points) {
      times.push_back(Ticks(point.begin) - std::exchange(before, Ticks(point.begin)));
      for (const size_t k : kinds) values.push_back(point.live[k].value / unit);
    }
    return absl::StrCat("{\"unit\":", unit, ",\"kinds\":[", absl::StrJoin(kinds, ","), "],\"times\":[",
                        absl::StrJoin(times, ","), "],\"values\":[", absl::StrJoin(values, ","), "]}");
  }

  const PredictedStep& step_;
  const std::vector<StageFacts>& stages_;
  const std::vector<TimeRange>& detail_;
  const PageLimits& limits_;
  int64_t tick_ = 1;
  Texts texts_;
};

}  // namespace

std::string PageData(const PredictedStep& step, const std::vector<StageFacts>& stages, const std::vector<TimeRange>& detail,
                     const PageLimits& limits) {
  return Writer(step, stages, detail, limits).Json();
}

}  // namespace lynx
