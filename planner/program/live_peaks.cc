#include "planner/program/live_peaks.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "planner/program/access_table.h"

namespace lynx {

LivePeaks::LivePeaks(const Program& program, const StageContext& context) {
  AccessTable table(context);
  absl::flat_hash_map<BufferKey, int32_t> buffers;
  first_.reserve(program.size() + 1);
  for (const Action& action : program) {
    first_.push_back(uses_.size());
    for (const Access& access : table.Of(action)) {
      const int32_t buffer = buffers.try_emplace(access.key, static_cast<int32_t>(buffers.size())).first->second;
      uses_.push_back({buffer, access.mode, Padded(access.bytes)});
    }
  }
  first_.push_back(uses_.size());
  live_.resize(buffers.size());
}

Bytes LivePeaks::Of(std::span<const int32_t> order) {
  const size_t actions = first_.size() - 1;
  std::fill(live_.begin(), live_.end(), Instance{});
  change_.assign(actions + 1, Bytes(0));
  const auto end = [&](Instance& instance) {
    if (instance.last >= 0) change_[static_cast<size_t>(instance.last) + 1] -= instance.bytes;
    instance = {};
  };
  for (size_t place = 0; place < actions; ++place) {
    const size_t action = place < order.size() ? static_cast<size_t>(order[place]) : place;
    for (size_t u = first_[action]; u < first_[action + 1]; ++u) {
      const Use& use = uses_[u];
      Instance& instance = live_[static_cast<size_t>(use.buffer)];
      const auto at = static_cast<int32_t>(place);
      if (use.mode == AccessMode::kWrite || (use.mode == AccessMode::kAccumulate && instance.last < 0)) {
        end(instance);
        instance = {at, use.bytes};
        change_[place] += use.bytes;
        continue;
      }
      LYNX_CHECK(instance.last >= 0);
      instance.last = at;
      if (use.mode == AccessMode::kRelease) end(instance);
    }
  }
  for (Instance& instance : live_) end(instance);
  Bytes now, peak;
  for (size_t place = 0; place < actions; ++place) {
    now += change_[place];
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace lynx
