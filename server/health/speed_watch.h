// SpeedWatch: finds ranks whose computation has become slower or faster since the generation began, compared with the other
// ranks. Bounded. Not thread-safe; owned by the controller.
#ifndef LYNX_SERVER_HEALTH_SPEED_WATCH_H_
#define LYNX_SERVER_HEALTH_SPEED_WATCH_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "server/health/time_window.h"

namespace lynx::server {

class SpeedWatch {
 public:
  SpeedWatch() = default;
  explicit SpeedWatch(int32_t ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // Adds the time that the rank's compute stream was busy in its next step.
  void Add(int32_t rank, Nanos busy);

  // Returns for each rank how many times as long a step's computation takes now as in the first steps. Each factor is divided
  // by the factor of the rank that changed least, because a change that affects all ranks alike does not show that one rank is
  // slow. Empty: there are too few steps yet.
  std::vector<double> Changes() const;

  // From now on, Changes() compares with the latest steps.
  void Rebase();

 private:
  std::vector<TimeWindow> ranks_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_SPEED_WATCH_H_
