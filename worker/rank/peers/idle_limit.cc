#include "worker/rank/peers/idle_limit.h"

#include <algorithm>
#include <cstddef>

namespace lynx::worker {

void IdleLimit::RecordStep(Nanos step) {
  if (steps_.size() < kWindow) {
    steps_.push_back(step);
  } else {
    steps_[next_] = step;
    next_ = (next_ + 1) % kWindow;
  }
  if (!knows_steps()) return;
  std::vector<Nanos> sorted = steps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const Nanos limit = std::max(*middle * 3, kShortestIdleLimit);
  if (limit == now_) return;
  now_ = limit;
  EndCheckpoint();
}

}  // namespace lynx::worker
