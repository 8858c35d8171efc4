// SkewWatch: how uneven the load of experts has been lately. Bounded. Not thread-safe; owned by the controller.
#ifndef LYNX_SERVER_HEALTH_SKEW_WATCH_H_
#define LYNX_SERVER_HEALTH_SKEW_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/health/time_window.h"

namespace lynx::server {

class SkewWatch {
 public:
  // Adds the skew of the next step (ExpertLoad::skew).
  void Add(double skew);
  // The median over the newest TimeWindow::kSteps steps. nullopt: fewer steps are known than a TimeWindow needs to compare the
  // newest with the first ones.
  std::optional<double> Lasting() const;

 private:
  int64_t seen_ = 0;
  std::vector<double> newest_;  // at most TimeWindow::kSteps; once it is full, step i is at i % kSteps
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_SKEW_WATCH_H_
