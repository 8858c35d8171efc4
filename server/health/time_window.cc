// See time_window.h.
#include "server/health/time_window.h"

#include <algorithm>

#include "common/check.h"

namespace lynx::server {
namespace {

Nanos Median(std::vector<Nanos> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

void TimeWindow::Add(Nanos time) {
  if (++seen_ <= kWarmupSteps) return;
  if (first_.size() < kSteps) {
    first_.push_back(time);
  } else if (newest_.size() < kSteps) {
    newest_.push_back(time);
  } else {
    newest_[next_] = time;
    next_ = (next_ + 1) % kSteps;
  }
}

Nanos TimeWindow::First() const {
  LYNX_CHECK(complete());
  return Median(first_);
}

Nanos TimeWindow::Newest() const {
  LYNX_CHECK(complete());
  return Median(newest_);
}

std::vector<Nanos> TimeWindow::LatestSteps() const {
  std::vector<Nanos> latest;
  for (size_t i = kSteps / 2; i < kSteps; ++i) latest.push_back(newest_[(next_ + i) % kSteps]);
  return latest;
}

Nanos TimeWindow::Latest() const {
  LYNX_CHECK(complete());
  return Median(LatestSteps());
}

void TimeWindow::Rebase() {
  if (!complete()) return;
  first_ = LatestSteps();
  newest_.clear();
  next_ = 0;
}

}  // namespace lynx::server
