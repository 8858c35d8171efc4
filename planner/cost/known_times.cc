#include "planner/cost/known_times.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "planner/cost/op_cost.h"

namespace lynx {
namespace {

const ShapeTimes* FindTimes(const std::vector<ShapeTimes>& measured, const LayerShape& shape) {
  const auto found = std::find_if(measured.begin(), measured.end(), [&](const ShapeTimes& t) { return t.shape == shape; });
  return found == measured.end() ? nullptr : &*found;
}

TimesOfOps ComputedTimes(const HardwareProfile& profile, const LayerGraph& graph, const LayerShape& shape) {
  TimesOfOps of_ops{};
  for (const OpInfo& info : graph.ops()) {
    OpTimes& times = of_ops[static_cast<size_t>(info.op)];
    times.forward = OpCost(profile, info.op, Pass::kForward, shape);
    times.backward = OpCost(profile, info.op, Pass::kBackward, shape);
    if (info.has_weight_pass) times.weight = OpCost(profile, info.op, Pass::kWeight, shape);
  }
  return of_ops;
}

// True if the shapes are of one model, and differ only in how a microbatch is divided over ranks, in its size, in the type of
// the sums of gradients, and in the load of experts that is planned for.
bool OfOneModel(LayerShape a, const LayerShape& b) {
  a.micro_batch = b.micro_batch;
  a.tp = b.tp;
  a.cp = b.cp;
  a.ep = b.ep;
  a.sequence_parallel = b.sequence_parallel;
  a.skew_permille = b.skew_permille;
  a.gradient_dtype = b.gradient_dtype;
  return a == b;
}

// The measured shape of the same model whose sizes differ from `shape` by the smallest factor; null: there is none. The *twin*,
// which differs only in sequence parallelism or in the type of the sums of gradients, is the nearest of all.
const ShapeTimes* FindNearest(const std::vector<ShapeTimes>& measured, const LayerShape& shape) {
  const ShapeTimes* nearest = nullptr;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const ShapeTimes& times : measured) {
    if (!OfOneModel(times.shape, shape)) continue;
    double factor = 1;
    for (const int32_t LayerShape::*size : {&LayerShape::micro_batch, &LayerShape::tp, &LayerShape::cp, &LayerShape::ep}) {
      const auto [less, more] = std::minmax(times.shape.*size, shape.*size);
      factor *= static_cast<double>(more) / less;
    }
    const auto millionths = static_cast<int64_t>(factor * 1e6);
    if (millionths < least) nearest = &times, least = millionths;
  }
  return nearest;
}

bool IsTwin(LayerShape a, const LayerShape& b) {
  a.sequence_parallel = b.sequence_parallel;
  a.skew_permille = b.skew_permille;
  a.gradient_dtype = b.gradient_dtype;
  return a == b;
}

// Takes the measured times of another shape of the same model. `times` holds computed times, which are scaled: each is
// multiplied by the other shape's measured time and divided by its computed time. The stated rates of a device may be higher
// than the measured ones. Even then, a shape without measurements does not look faster than the measured shapes. For the twin
// this is nearly exact: most ops are the same in both shapes, and in one of the shapes, the other ops work only on a share of
// the tokens.
void TakeFrom(const TimesOfOps& measured, const TimesOfOps& computed, TimesOfOps& times) {
  const auto scale = [](Nanos of_other, Nanos computed_of_other, Nanos& time) {
    if (computed_of_other.value <= 0) return;
    const __int128 scaled = static_cast<__int128>(of_other.value) * time.value / computed_of_other.value;
    time = Nanos(static_cast<int64_t>(std::min<__int128>(scaled, kMaxTime.value)));
  };
  for (size_t op = 0; op < times.size(); ++op) {
    scale(measured[op].forward, computed[op].forward, times[op].forward);
    scale(measured[op].backward, computed[op].backward, times[op].backward);
    scale(measured[op].weight, computed[op].weight, times[op].weight);
  }
}

// The computed times of the work that was measured for a shape: experts were measured with full rooms, without rounds.
TimesOfOps ComputedAsMeasured(const HardwareProfile& profile, LayerShape shape) {
  shape.dropless = false;
  return ComputedTimes(profile, LayerGraph::Of(shape), shape);
}

}  // namespace

KnownTimes KnownTimesOf(const HardwareProfile& profile, const LayerShape& shape) {
  const ShapeTimes* own = FindTimes(profile.measured, shape);
  if (own != nullptr) {
    KnownTimes known{.ops = own->ops, .measured = true, .optimizer_per_mega_parameter = own->optimizer_per_mega_parameter};
    if (shape.round_room() == 0) return known;
    TimesOfOps with_rounds = ComputedTimes(profile, LayerGraph::Of(shape), shape);
    TakeFrom(own->ops, ComputedAsMeasured(profile, shape), with_rounds);
    for (const Op op : {Op::kFc1, Op::kSilu, Op::kSwiglu, Op::kFc2}) {
      known.ops[static_cast<size_t>(op)] = with_rounds[static_cast<size_t>(op)];
    }
    return known;
  }
  KnownTimes known{.ops = ComputedTimes(profile, LayerGraph::Of(shape), shape)};
  const ShapeTimes* nearest = FindNearest(profile.measured, shape);
  if (nearest == nullptr) return known;
  TakeFrom(nearest->ops, ComputedAsMeasured(profile, nearest->shape), known.ops);
  known.measured = IsTwin(nearest->shape, shape);
  if (known.measured) known.optimizer_per_mega_parameter = nearest->optimizer_per_mega_parameter;
  return known;
}

}  // namespace lynx
