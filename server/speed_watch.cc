// See speed_watch.h.
#include "server/speed_watch.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace lynx {
namespace {

constexpr int64_t kWarmupSteps = 2;  // of a generation: caches are cold, pages are touched for the first time

double Median(std::vector<Nanos> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(std::max<int64_t>(1, middle->value));
}

}  // namespace

void SpeedWatch::Add(int32_t rank, Nanos busy) {
  LYNX_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size());
  Rank& of = ranks_[static_cast<size_t>(rank)];
  if (++of.seen <= kWarmupSteps) return;
  if (of.first.size() < kWindow) {
    of.first.push_back(busy);
  } else if (of.newest.size() < kWindow) {
    of.newest.push_back(busy);
  } else {
    of.newest[of.next] = busy;
    of.next = (of.next + 1) % kWindow;
  }
}

std::vector<double> SpeedWatch::Changes() const {
  std::vector<double> changes;
  for (const Rank& rank : ranks_) {
    if (rank.newest.size() < kWindow) return {};
    changes.push_back(Median(rank.newest) / Median(rank.first));
  }
  if (changes.empty()) return {};
  const double least = *std::min_element(changes.begin(), changes.end(), [](double a, double b) {
    return std::abs(std::log(a)) < std::abs(std::log(b));
  });
  for (double& change : changes) change /= least;
  return changes;
}

void SpeedWatch::Rebase() {
  for (Rank& rank : ranks_) {
    if (rank.newest.size() < kWindow) continue;
    rank.first = std::move(rank.newest);
    rank.newest.clear();
    rank.next = 0;
  }
}

}  // namespace lynx
