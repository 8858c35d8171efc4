#include "worker/model/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"
#include "planner/problem/layout.h"

namespace lynx::worker {
namespace {

static_assert(kMaxRotaryDims == 2 * RotaryTable::kMaxPairs);

constexpr double kTurn = 2 * std::numbers::pi;

double DynamicBase(const RotarySpec& rotary, double turning, int32_t seq) {
  const double original = rotary.original_seq;
  const double longest = std::max<double>(seq, original);
  return rotary.theta * std::pow(rotary.factor * longest / original - (rotary.factor - 1), turning / (turning - 2));
}

double Llama3Slope(const RotarySpec& rotary, double slope) {
  const double wavelength = kTurn / slope, original = rotary.original_seq;
  if (wavelength > original / rotary.low_freq_factor) return slope / rotary.factor;
  if (wavelength < original / rotary.high_freq_factor) return slope;
  const double mix = (original / wavelength - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor);
  return (1 - mix) * slope / rotary.factor + mix * slope;
}

// Returns the number of the pair that rotates `rotations` times within the original positions. The result need not be a whole
// number. `turning`: the number of elements of a head that rotate.
double YarnPair(const RotarySpec& rotary, double turning, double rotations) {
  return turning * std::log(rotary.original_seq / (rotations * kTurn)) / (2 * std::log(rotary.theta));
}

double YarnSlope(const RotarySpec& rotary, double turning, double pair, double slope) {
  const double low = std::max(0.0, std::floor(YarnPair(rotary, turning, rotary.beta_fast)));
  double high = std::min(turning - 1, std::ceil(YarnPair(rotary, turning, rotary.beta_slow)));
  if (high == low) high += 0.001;
  const double kept = 1 - std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return (1 - kept) * slope / rotary.factor + kept * slope;
}

}  // namespace

float ScoreFactorOf(const RotarySpec& rotary) {
  if (rotary.scaling != RopeScaling::kYarn) return 1;
  const double scale = 0.1 * rotary.mscale_all_dim * std::log(rotary.factor) + 1;
  return static_cast<float>(scale * scale);
}

RotaryTable RotaryTableOf(const ModelSpec& model) {
  RotaryTable table;
  if (model.family != ModelFamily::kLlama) return table;
  const RotarySpec& rotary = model.rotary;
  const int32_t dims = rotary.dims == 0 ? model.head_size() : rotary.dims;
  table.pairs = dims / 2;
  LYNX_CHECK(table.pairs <= RotaryTable::kMaxPairs);
  const double turning = dims;
  const double base = rotary.scaling == RopeScaling::kDynamic ? DynamicBase(rotary, turning, model.seq) : rotary.theta;
  for (int64_t i = 0; i < table.pairs; ++i) {
    const auto pair = static_cast<double>(i);
    double slope = std::pow(base, -2.0 * pair / turning);
    if (rotary.scaling == RopeScaling::kLinear) slope /= rotary.factor;
    if (rotary.scaling == RopeScaling::kLlama3) slope = Llama3Slope(rotary, slope);
    if (rotary.scaling == RopeScaling::kYarn) slope = YarnSlope(rotary, turning, pair, slope);
    table.slopes[static_cast<size_t>(i)] = slope;
  }
  if (rotary.scaling == RopeScaling::kYarn) {
    table.scale = rotary.attention_factor > 0 ? rotary.attention_factor : 0.1 * std::log(rotary.factor) + 1;
  }
  return table;
}

}  // namespace lynx::worker
