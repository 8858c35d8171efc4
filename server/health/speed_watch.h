// SpeedWatch: which ranks of a generation compute slower or faster than when it began, beside the others. Bounded. Not
// thread-safe; owned by the controller.
#ifndef LYNX_SERVER_HEALTH_SPEED_WATCH_H_
#define LYNX_SERVER_HEALTH_SPEED_WATCH_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "server/health/time_window.h"

namespace lynx {

class SpeedWatch {
 public:
  SpeedWatch() = default;
  explicit SpeedWatch(int32_t ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // The time that the rank's compute stream was busy in its next step.
  void Add(int32_t rank, Nanos busy);

  // By rank: by what factor a step's computation has become longer since the generation's first steps, divided by that of the
  // rank that changed least: what slows all alike says nothing of one. Empty: too little is known yet.
  std::vector<double> Changes() const;

  // From now on changes are those since the latest steps.
  void Rebase();

 private:
  std::vector<TimeWindow> ranks_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_SPEED_WATCH_H_
