// See skew_watch.h.
#include "server/health/skew_watch.h"

#include <algorithm>

namespace lynx::server {

void SkewWatch::Add(double skew) {
  if (newest_.size() < TimeWindow::kSteps) {
    newest_.push_back(skew);
  } else {
    newest_[static_cast<size_t>(seen_) % TimeWindow::kSteps] = skew;
  }
  ++seen_;
}

std::optional<double> SkewWatch::Lasting() const {
  if (seen_ < TimeWindow::kWarmupSteps + static_cast<int64_t>(2 * TimeWindow::kSteps)) return std::nullopt;
  std::vector<double> skews = newest_;
  const auto middle = skews.begin() + static_cast<std::ptrdiff_t>(skews.size() / 2);
  std::nth_element(skews.begin(), middle, skews.end());
  return *middle;
}

}  // namespace lynx::server
