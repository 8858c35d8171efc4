// See speed_watch.h.
#include "server/health/speed_watch.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace lynx::server {
namespace {

double Positive(Nanos time) { return static_cast<double>(std::max<int64_t>(1, time.value)); }

}  // namespace

void SpeedWatch::Add(int32_t rank, Nanos busy) {
  LYNX_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size());
  ranks_[static_cast<size_t>(rank)].Add(busy);
}

std::vector<double> SpeedWatch::Changes() const {
  std::vector<double> changes;
  for (const TimeWindow& rank : ranks_) {
    if (!rank.complete()) return {};
    changes.push_back(Positive(rank.Newest()) / Positive(rank.First()));
  }
  if (changes.empty()) return {};
  const double least = *std::min_element(changes.begin(), changes.end(),
                                         [](double a, double b) { return std::abs(std::log(a)) < std::abs(std::log(b)); });
  for (double& change : changes) change /= least;
  return changes;
}

void SpeedWatch::Rebase() {
  for (TimeWindow& rank : ranks_) rank.Rebase();
}

}  // namespace lynx::server
